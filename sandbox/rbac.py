"""Permissions of the sandbox's own programs; process nodes have those of any kubelet."""

from __future__ import annotations

from typing import Any, Final

from infra.domain import naming
from infra.observability import series

Document = dict[str, Any]

READ: Final = ["get", "list", "watch"]
_GROUP: Final = "rbac.authorization.k8s.io"


def rule(resources: list[str], verbs: list[str], group: str = "") -> Document:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


def grant(component: str, name: str, user: str, rules: list[Document]) -> list[Document]:
    role: Document = {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": _metadata(component, name),
        "rules": rules,
    }
    return [role, bind(component, name, user, role["metadata"]["name"])]


def bind(component: str, name: str, user: str, role: str) -> Document:
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": _metadata(component, name),
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": _GROUP, "kind": "User", "name": user}],
    }


def _metadata(component: str, name: str) -> Document:
    return {"name": f"sandbox-{name}", "labels": naming.object_labels(component)}


AGENT: Final = "process-nodes"
"""Finds its nodes and Services, says which answer for aggregated APIs, and requests certificates of nodes."""
PROVISIONER: Final = "provisioner"
"""Creates and deletes PersistentVolumes."""
CLOUD: Final = "cloud"
"""Reclaims and restores nodes, as a cloud and its interruption handler do."""
IDENTITIES: Final = (AGENT, PROVISIONER, CLOUD)
"""Names of users and of their certificates."""
_COMPONENT: Final = "process-node"

_MONITORING: Final = f"system:serviceaccount:{naming.MONITORING_NAMESPACE}"
STATE_METRICS: Final = f"{_MONITORING}:kube-state-metrics"
GPU_EXPORTER: Final = f"{_MONITORING}:gpu-exporter"
"""Common names of certificates: the programs' service accounts on other clusters."""
PROMETHEUS: Final = "prometheus"
"""Service account: Kueue authenticates scrapes by token, not by certificate."""
_BATCH: Final = ("cronjobs", "jobs")


def rbac_objects() -> list[Document]:
    """Return the cluster-wide roles and bindings; `system:` roles are the API server's own."""
    cloud = [
        rule(["nodes"], ["get", "list", "create", "patch", "delete"]),
        rule(["nodes/status"], ["patch"]),
        rule(["pods"], ["list"]),
        rule(["pods/eviction", "events"], ["create"]),
    ]
    agent = [
        rule(["nodes", "services"], READ),
        rule(["apiservices"], READ, "apiregistration.k8s.io"),
        rule(["endpointslices"], ["create"], "discovery.k8s.io"),
    ]
    requests = "system:certificates.k8s.io:certificatesigningrequests:nodeclient"
    return [
        *grant(_COMPONENT, "process-nodes", AGENT, agent),
        bind(_COMPONENT, "process-nodes-bootstrap", AGENT, "system:node-bootstrapper"),
        bind(_COMPONENT, "process-nodes-approval", AGENT, requests),
        bind(_COMPONENT, "provisioner", PROVISIONER, "system:persistent-volume-provisioner"),
        *grant(_COMPONENT, "cloud", CLOUD, cloud),
    ]


def monitoring_objects() -> list[Document]:
    """Return namespace, service account, cluster-wide roles and bindings; none reads secrets."""
    namespace, component = naming.MONITORING_NAMESPACE, "monitoring"
    labels = naming.object_labels(component)
    level = {"pod-security.kubernetes.io/enforce": "restricted"}
    states = [rule([one], READ, "batch" if one in _BATCH else "") for one in series.STATE_RESOURCES]
    scrapes = [rule(["pods"], READ), {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": namespace, "labels": labels | level},
        },
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": PROMETHEUS, "namespace": namespace, "labels": labels},
            "automountServiceAccountToken": False,
        },
        *grant(component, PROMETHEUS, f"{_MONITORING}:{PROMETHEUS}", scrapes),
        *grant(component, "kube-state-metrics", STATE_METRICS, states),
        *grant(component, "gpu-exporter", GPU_EXPORTER, [rule(["nodes", "pods"], READ)]),
    ]
