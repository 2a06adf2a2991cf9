"""The policy that requires their signatures; policy-controller enforces it."""

from __future__ import annotations

from typing import Any, Final

from infra.domain import naming
from infra.kubernetes.objects import Manifest, manifest
from infra.sections.signatures import SignaturesConfig

API: Final = naming.IMAGE_POLICY_API


def _authority(signer: SignaturesConfig) -> dict[str, Any]:
    if signer.keyless is None:
        return {"name": "kms", "key": {"kms": f"awskms:///{signer.kms_key}"}}
    identity = {"issuer": signer.keyless.issuer, "subject": signer.keyless.subject}
    return {
        "name": "keyless",
        "keyless": {"url": "https://fulcio.sigstore.dev", "identities": [identity]},
        "ctlog": {"url": "https://rekor.sigstore.dev"},
    }


def image_policy(signer: SignaturesConfig) -> Manifest:
    """Return the policy for all images; admission policies restrict registries."""
    return manifest(
        f"{API}/ClusterImagePolicy",
        naming.IMAGE_POLICY,
        "signatures",
        spec={
            "mode": "enforce",
            "images": [{"glob": "**"}],
            "authorities": [_authority(signer)],
        },
    )
