"""What a team's pods may reach: each other on a run's ports, DNS, and object storage. Nothing else.
Who may reach them from outside: Prometheus, on the one port on which runs tell how they go.

"Each other" is the team, not the run: a policy cannot say "pods with the same run id as mine", and one
policy per run would have to be written by who deploys runs. Policies only ever add, so whoever may write
one may open everything. Runs of a team share its volumes anyway.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any, Final

from infra.domain import naming
from infra.kubernetes import network_policy
from infra.kubernetes.objects import Manifest, metadata

METADATA_BLOCKS: Final = (
    ipaddress.ip_network("169.254.0.0/16"),
    ipaddress.ip_network("fd00:ec2::/32"),
)
"""The instance metadata service lives here; a pod that reaches it has the node's identity. By IPv6 it is
fd00:ec2::254: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html"""

EPHEMERAL_PORTS: Final = (32768, 60999)
"""NCCL, gloo, torch's stores and Open MPI listen on port 0, so the kernel chooses: Linux gives each network
namespace this range, whatever its host has (net.ipv4.ip_local_port_range)."""

RUN_PORTS: Final = (naming.RENDEZVOUS_PORTS, EPHEMERAL_PORTS, (naming.MPI_SSH_PORT,) * 2)
"""First and last of each range on which a run's pods listen. EFA is not seen by network policies: its
security group holds it."""

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
            "egress": [network_policy.name_resolution()],
        },
    )


def allow_run_traffic(team: str) -> Manifest:
    """Training pods of the team among themselves, on the ports on which a run listens."""
    peers = [{"podSelector": _RUN_PODS}]
    ports = [_ports(first, last) for first, last in RUN_PORTS]
    return _policy(
        "allow-run-traffic",
        team,
        {
            "podSelector": _RUN_PODS,
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": peers, "ports": ports}],
            "egress": [{"to": peers, "ports": ports}],
        },
    )


def allow_monitoring(team: str) -> Manifest:
    """Prometheus may ask training pods how they go, on that one port."""
    asking = {"namespaceSelector": network_policy.in_namespace(naming.MONITORING_NAMESPACE)}
    return _policy(
        "allow-monitoring",
        team,
        {
            "podSelector": _RUN_PODS,
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [asking], "ports": [_ports(naming.METRICS_PORT, naming.METRICS_PORT)]}
            ],
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


def _ports(first: int, last: int) -> dict[str, Any]:
    return {"protocol": "TCP", "port": first} | ({"endPort": last} if last > first else {})


def _block(cidr: str) -> dict[str, Any]:
    network = ipaddress.ip_network(cidr)
    held = [str(b) for b in METADATA_BLOCKS if b.version == network.version and b.overlaps(network)]
    return {"cidr": cidr} | ({"except": held} if held else {})


def policies(
    team: str, egress_cidrs: Sequence[str], node_services: Sequence[str] = ()
) -> list[Manifest]:
    """All network policies of a team's namespace."""
    found = [default_deny(team), allow_dns(team), allow_run_traffic(team), allow_monitoring(team)]
    if egress_cidrs:
        found.append(allow_object_storage(team, egress_cidrs))
    if node_services:
        found.append(allow_node_services(team, node_services))
    return found
