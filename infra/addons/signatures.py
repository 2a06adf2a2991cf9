"""Who signs images, and the policy that asks for it; policy-controller enforces it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from infra.domain import naming
from infra.kubernetes.objects import Manifest, metadata

API: Final = "policy.sigstore.dev/v1beta1"
POLICY: Final = "trainyard-training-images"


@dataclass(frozen=True, kw_only=True)
class Keyless:
    """A signature by an identity that an OIDC issuer vouches for, recorded in Rekor's public log."""

    issuer: str
    """URL, such as https://token.actions.githubusercontent.com."""
    subject: str
    """The identity, exact: for GitHub the workflow that builds, with its branch."""


@dataclass(frozen=True, kw_only=True)
class KmsKey:
    """A signature by a key that nobody can copy."""

    uri: str
    """As cosign names it: awskms:///ARN."""


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
    """Every image, whatever its registry: which registries there may be, the walls say."""
    return {
        "apiVersion": API,
        "kind": "ClusterImagePolicy",
        "metadata": metadata(POLICY, labels=naming.object_labels("signatures")),
        "spec": {
            "mode": "enforce",
            "images": [{"glob": "**"}],
            "authorities": [_authority(signer)],
        },
    }
