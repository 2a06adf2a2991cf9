"""The ProvisioningRequest API, which Cluster Autoscaler serves but its chart does not contain."""

from __future__ import annotations

from typing import Final

from infra.domain import naming
from infra.kubernetes.crds import crd
from infra.kubernetes.objects import Manifest, metadata

GROUP: Final = "autoscaling.x-k8s.io"
_PLURAL: Final = "provisioningrequests"
ROLE: Final = "cluster-autoscaler-provisioning"


def definition() -> Manifest:
    """Return the CRD. Kueue looks for it at startup, so it must precede Kueue."""
    return crd(
        f"{_PLURAL}.{GROUP}",
        naming.object_labels("autoscaler"),
        # The API server rejects CRDs of *.x-k8s.io without an approval annotation.
        {"api-approved.kubernetes.io": "https://github.com/kubernetes/autoscaler/pull/5848"},
    )


def cluster_role() -> Manifest:
    """Return the autoscaler's rights on the API, which its chart's role lacks."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": metadata(ROLE, labels=naming.object_labels("autoscaler")),
        "rules": [
            {
                "apiGroups": [GROUP],
                "resources": [_PLURAL, f"{_PLURAL}/status"],
                "verbs": ["get", "list", "watch", "update", "patch"],
            },
            {"apiGroups": [""], "resources": ["podtemplates"], "verbs": ["get", "list", "watch"]},
        ],
    }


def cluster_role_binding(namespace: str, service_account: str) -> Manifest:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": metadata(ROLE, labels=naming.object_labels("autoscaler")),
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": ROLE,
        },
        "subjects": [{"kind": "ServiceAccount", "name": service_account, "namespace": namespace}],
    }
