"""Only images that somebody trusted has signed: sigstore's policy-controller, and what it asks for.

It works in namespaces that opt in by label, which are the teams'. An image without a signature that the
policy accepts is refused, and so is one that no policy matches. While the controller is down its webhook
refuses all pods there (failurePolicy Fail): walls that open when they break are none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pulumi
import pulumi_kubernetes as k8s

from infra import naming
from infra.objects import KubernetesObject, Manifest, metadata

CHART: Final = "oci://ghcr.io/sigstore/helm-charts/policy-controller"
CHART_VERSION: Final = "0.10.5"
VALUES: Final[Mapping[str, Any]] = {
    "webhook": {
        "replicaCount": 2,
        # On AWS the role that reads signatures is handed to this account.
        "serviceAccount": {"name": naming.SIGNATURES_ACCOUNT},
        "failurePolicy": "Fail",
        "namespaceSelector": {
            "matchExpressions": [
                {"key": naming.SIGNED_IMAGES, "operator": "In", "values": ["true"]}
            ]
        },
        # What to do with an image that no policy matches.
        "configData": {"no-match-policy": "deny"},
    }
}

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
        "apiVersion": "policy.sigstore.dev/v1beta1",
        "kind": "ClusterImagePolicy",
        "metadata": metadata(POLICY, labels=naming.object_labels("signatures")),
        "spec": {
            "mode": "enforce",
            "images": [{"glob": "**"}],
            "authorities": [_authority(signer)],
        },
    }


@dataclass(frozen=True, kw_only=True)
class SignaturesArgs:
    """Who signs the images of this stack's teams."""

    signer: Signer


class Signatures(pulumi.ComponentResource):
    """The controller and its policy. Teams' namespaces go before it, and come after it."""

    def __init__(self, name: str, args: SignaturesArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("Signatures"), name, None, opts)
        own = pulumi.ResourceOptions(parent=self)
        namespace = KubernetesObject(
            f"{name}-namespace",
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": metadata(
                    naming.SIGNATURES_NAMESPACE, labels=naming.object_labels("signatures")
                ),
            },
            own,
        )
        controller = k8s.helm.v3.Release(
            f"{name}-controller",
            name="policy-controller",
            chart=CHART,
            version=CHART_VERSION,
            namespace=naming.SIGNATURES_NAMESPACE,
            values=dict(VALUES),
            atomic=True,
            timeout=600,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[namespace]),
        )
        KubernetesObject(
            f"{name}-policy",
            image_policy(args.signer),
            pulumi.ResourceOptions(parent=self, depends_on=[controller]),
        )
        self.register_outputs({"policy": POLICY})
