"""Permissions of the programs around process nodes; the nodes themselves have those of any kubelet."""

from __future__ import annotations

from typing import Final

from sandbox.rbac import READ, Document, bind, grant, rule

AGENT: Final = "process-nodes"
"""Finds its nodes and Services, says which answer for aggregated APIs, and requests certificates of nodes."""
PROVISIONER: Final = "provisioner"
"""Creates and deletes PersistentVolumes."""
CLOUD: Final = "cloud"
"""Reclaims and restores nodes, as a cloud and its interruption handler do."""
IDENTITIES: Final = (AGENT, PROVISIONER, CLOUD)
"""Names of users and of their certificates."""
_COMPONENT: Final = "process-node"


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
