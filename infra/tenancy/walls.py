"""What a team's pods may reach: each other within a run, DNS, and object storage. Nothing else."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any, Final

from infra import naming
from infra.objects import Manifest, metadata

_LINK_LOCAL: Final = ipaddress.IPv4Network("169.254.0.0/16")
"""The instance metadata service lives here; a pod that reaches it has the node's identity."""

_RUN_PODS: Final = {"matchExpressions": [{"key": naming.RUN_ID, "operator": "Exists"}]}


def _policy(name: str, team: str, spec: dict[str, Any]) -> Manifest:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(
            name, namespace=naming.namespace(team), labels=naming.object_labels("walls", team)
        ),
        "spec": spec,
    }


def default_deny(team: str) -> Manifest:
    """No traffic in either direction unless another policy names it."""
    return _policy("default-deny", team, {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})


def allow_dns(team: str) -> Manifest:
    """Name resolution by the cluster's own servers."""
    return _policy(
        "allow-dns",
        team,
        {
            "podSelector": {},
            "policyTypes": ["Egress"],
            "egress": [
                {
                    "to": [
                        {
                            "namespaceSelector": {
                                "matchLabels": {"kubernetes.io/metadata.name": "kube-system"}
                            },
                            "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
                        }
                    ],
                    "ports": [
                        {"protocol": "UDP", "port": 53},
                        {"protocol": "TCP", "port": 53},
                    ],
                }
            ],
        },
    )


def allow_run_traffic(team: str) -> Manifest:
    """Training pods of the team among themselves, on all ports: NCCL and gloo choose theirs."""
    peers = [{"podSelector": _RUN_PODS}]
    return _policy(
        "allow-run-traffic",
        team,
        {
            "podSelector": _RUN_PODS,
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": peers}],
            "egress": [{"to": peers}],
        },
    )


def allow_object_storage(team: str, cidrs: Sequence[str]) -> Manifest:
    """HTTPS to the given blocks, link-local addresses taken out."""
    return _policy(
        "allow-object-storage",
        team,
        {
            "podSelector": {},
            "policyTypes": ["Egress"],
            "egress": [
                {
                    "to": [{"ipBlock": _block(cidr)} for cidr in cidrs],
                    "ports": [{"protocol": "TCP", "port": 443}],
                }
            ],
        },
    )


def allow_node_services(team: str, addresses: Sequence[str]) -> Manifest:
    """HTTP to services of the pod's own node, each by its one link-local address."""
    return _policy(
        "allow-node-services",
        team,
        {
            "podSelector": {},
            "policyTypes": ["Egress"],
            "egress": [
                {
                    "to": [{"ipBlock": {"cidr": f"{address}/32"}} for address in addresses],
                    "ports": [{"protocol": "TCP", "port": 80}],
                }
            ],
        },
    )


def _block(cidr: str) -> dict[str, Any]:
    network = ipaddress.ip_network(cidr)
    if isinstance(network, ipaddress.IPv4Network) and _LINK_LOCAL.subnet_of(network):
        return {"cidr": cidr, "except": [str(_LINK_LOCAL)]}
    return {"cidr": cidr}


def policies(
    team: str, egress_cidrs: Sequence[str], node_services: Sequence[str] = ()
) -> list[Manifest]:
    """All network policies of a team's namespace."""
    found = [default_deny(team), allow_dns(team), allow_run_traffic(team)]
    if egress_cidrs:
        found.append(allow_object_storage(team, egress_cidrs))
    if node_services:
        found.append(allow_node_services(team, node_services))
    return found
