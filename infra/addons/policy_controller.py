"""sigstore's policy-controller: admits only images signed by a trusted signer.

It works in namespaces that opt in by label, which are the teams'. It rejects images without an accepted signature,
and those that no policy matches. While the controller is down, all pods there are rejected (failurePolicy Fail).
"""

from __future__ import annotations

from typing import Any, Final

from infra.addons import controllers
from infra.addons.isolation import isolation
from infra.addons.model import WHOLE, AddOn, Image, Installable, PlacedBy, Section
from infra.domain import naming
from infra.kubernetes.helm import merged
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


VALUES: Final[dict[str, Any]] = {
    "webhook": {
        "replicaCount": controllers.REPLICAS,
        "podDisruptionBudget": controllers.DISRUPTION_BUDGET,
        "resources": controllers.chart_resources("100m", "512Mi"),
        "priorityClass": controllers.PRIORITY,
        # The container's security context, despite its name. The chart sets the rest of `restricted`.
        "podSecurityContext": {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        # On AWS the role that reads signatures is associated with this account.
        "serviceAccount": {"name": naming.SIGNATURES_ACCOUNT},
        "failurePolicy": "Fail",
        "namespaceSelector": {
            "matchExpressions": [
                {"key": naming.SIGNED_IMAGES, "operator": "In", "values": ["true"]}
            ]
        },
        # For images that no policy matches.
        "configData": {"no-match-policy": "deny"},
    },
    # The Job that runs once, when the release is removed.
    "leasescleanup": {"priorityClass": controllers.PRIORITY},
}


_WITHOUT_PUBLIC_ROOTS: Final[dict[str, Any]] = {"webhook": {"extraArgs": {"disable-tuf": "true"}}}
"""A key needs nothing of Sigstore's public services. The controller fetches their roots when it starts, and ends
where it cannot."""


def plan(signer: SignaturesConfig) -> Installable:
    """Return two webhook replicas, and the policy.

    The chart's clean-up Job sets no security context, so the namespace cannot be restricted.
    """
    return Installable(
        add_on="policyController",
        values=merged(VALUES, _WITHOUT_PUBLIC_ROOTS) if signer.kms_key else VALUES,
        # A registry may listen on any port.
        before=(
            isolation(
                "policy-controller",
                naming.SIGNATURES_NAMESPACE,
                called=(8443,),
                metrics=(9090,),
                egress=False,
            ),
        ),
        objects=(image_policy(signer),),
        namespace_labels=controllers.pod_security("baseline"),
    )


POLICY_CONTROLLER: Final = AddOn(
    name="policyController",
    section=Section.SIGNATURES,
    chart="oci://ghcr.io/sigstore/helm-charts/policy-controller",
    version="0.10.5",
    app_version="0.13.1",
    toolchain="0.13.1",
    namespace=naming.SIGNATURES_NAMESPACE,
    kubernetes=("1.27", ""),
    apis={"ClusterImagePolicy": API},
    images=(
        Image(
            registry="ghcr.io",
            repository="sigstore/policy-controller/policy-controller",
            values={"webhook.image.repository": WHOLE},
        ),
        # Runs once, when the release is removed.
        Image(
            registry="cgr.dev",
            repository="chainguard/kubectl",
            values={"leasescleanup.image.repository": WHOLE},
        ),
    ),
    placed=(PlacedBy(tolerations="commonTolerations", node_selector="commonNodeSelector"),),
    # Created after Kueue and so removed before it: Kueue's webhook is called for the chart's clean-up Job.
    needs=("kueue",),
    release="policy-controller",
    plan=plan,
)
