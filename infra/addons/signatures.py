"""Image signers, and the policy that requires their signatures; policy-controller enforces it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from infra.domain import naming
from infra.kubernetes.objects import Manifest, metadata

API: Final = naming.IMAGE_POLICY_API


@dataclass(frozen=True, kw_only=True)
class Keyless:
    """A signature by an identity of an OIDC issuer, recorded in Rekor's public log."""

    issuer: str
    """URL, such as https://token.actions.githubusercontent.com."""
    subject: str
    """The exact identity: for GitHub the workflow that builds, with its branch."""


@dataclass(frozen=True, kw_only=True)
class KmsKey:
    """A signature by a KMS key."""

    uri: str
    """In cosign's form: awskms:///ARN."""


Signer = Keyless | KmsKey


def _authority(signer: Signer) -> dict[str, Any]:
    if isinstance(signer, KmsKey):
        return {"name": "kms", "key": {"kms": signer.uri}}
    identity = {"issuer": signer.issuer, "subject": signer.subject}
    return {
        "name": "keyless",
        "keyless": {"url": "https://fulcio.sigstore.dev", "identities": [identity]},
        "ctlog": {"url": "https://rekor.sigstore.dev"},
    }


def image_policy(signer: Signer) -> Manifest:
    """Return the policy for all images; admission policies restrict registries."""
    return {
        "apiVersion": API,
        "kind": "ClusterImagePolicy",
        "metadata": metadata(naming.IMAGE_POLICY, labels=naming.object_labels("signatures")),
        "spec": {
            "mode": "enforce",
            "images": [{"glob": "**"}],
            "authorities": [_authority(signer)],
        },
    }
