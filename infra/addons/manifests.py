"""Objects of a controller without a chart, instead of upstream's published manifests.

Those contain rights for unused features. These have only the rights that the controller's code needs for the runs
of this project, and restricted pods. CRDs are upstream's (infra/kubernetes/crds).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from infra.addons import controllers
from infra.domain import naming
from infra.kubernetes import objects, system_nodes
from infra.kubernetes.objects import Manifest, metadata

Rule = dict[str, list[str]]
"""Rule of a Role or ClusterRole."""

USER: Final = 65532
"""`nonroot` of distroless images."""

RESTRICTED_POD: Final = {
    "runAsNonRoot": True,
    "runAsUser": USER,
    "runAsGroup": USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""Security context of a pod."""
RESTRICTED_CONTAINER: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
"""Security context of its containers."""

_LABEL: Final = "app.kubernetes.io/name"


def rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> Rule:
    return {"apiGroups": [group], "resources": [*resources], "verbs": [*verbs]}


LEADING: Final = rule("coordination.k8s.io", ["leases"], ["create", "get", "update"])
"""Leader election, in the controller's namespace."""

READ: Final = ("get", "list", "watch")
WRITE: Final = (*READ, "create", "delete", "patch", "update")


def access(
    name: str, namespace: str, everywhere: Sequence[Rule], at_home: Sequence[Rule]
) -> tuple[Manifest, ...]:
    """Return a service account with its rights in all namespaces and in its own, where it has any."""
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    found = [objects.manifest("v1/ServiceAccount", name, "operators", namespace=namespace)]
    for where, rules in ((None, everywhere), (namespace, at_home)):
        if rules:
            found.append(objects.role(name, "operators", rules, namespace=where))
            found.append(objects.role_binding(name, "operators", subject, namespace=where))
    return tuple(found)


def deployment(
    name: str,
    namespace: str,
    container: Mapping[str, Any],
    volumes: Sequence[Mapping[str, Any]] = (),
) -> tuple[Manifest, ...]:
    """Return a Deployment of two restricted pods, and its PodDisruptionBudget."""
    own = {_LABEL: name}
    labels = naming.object_labels("operators") | own
    pod = {
        "serviceAccountName": name,
        "priorityClassName": controllers.PRIORITY,
        "tolerations": list(system_nodes.TOLERATIONS),
        "affinity": controllers.anti_affinity(own),
        "securityContext": RESTRICTED_POD,
        "containers": [
            {
                "name": name,
                **container,
                "securityContext": RESTRICTED_CONTAINER,
            }
        ],
        **({"volumes": list(volumes)} if volumes else {}),
    }
    return (
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata(name, namespace=namespace, labels=labels),
            "spec": {
                "replicas": controllers.REPLICAS,
                "selector": {"matchLabels": own},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
        controllers.disruption_budget(name, namespace, own),
    )
