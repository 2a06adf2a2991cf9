"""NetworkPolicies of a team's namespace.

Pods reach each other on a run's ports, DNS, and object storage; from outside only Prometheus reaches them, on
the metrics port. Traffic is allowed within the team rather than the run: a policy cannot select "pods with my
run id", and deployers of runs must not write policies, because policies only add permissions. Runs of a team
share its volumes anyway.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any, Final

from infra.domain import naming
from infra.kubernetes import network_policy
from infra.kubernetes.objects import Manifest, in_team

METADATA_BLOCKS: Final = (
    ipaddress.ip_network("169.254.0.0/16"),
    ipaddress.ip_network("fd00:ec2::/32"),
)
"""Blocks of the instance metadata service, through which a pod would get the node's identity. By IPv6 it is
fd00:ec2::254: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html"""

EPHEMERAL_PORTS: Final = (32768, 60999)
"""NCCL, gloo, torch's stores and Open MPI listen on port 0, so the kernel chooses: Linux gives each network
namespace this range, whatever its host has (net.ipv4.ip_local_port_range)."""

RUN_PORTS: Final = (naming.RENDEZVOUS_PORTS, EPHEMERAL_PORTS, (naming.MPI_SSH_PORT,) * 2)
"""First and last port of each range on which a run's pods listen. Network policies do not see EFA, which its
security group restricts."""

_RUN_PODS: Final = {"matchExpressions": [{"key": naming.RUN_ID, "operator": "Exists"}]}


def _policy(name: str, team: str, spec: dict[str, Any]) -> Manifest:
    return in_team("networking.k8s.io/v1/NetworkPolicy", name, "walls", team, spec=spec)


def default_deny(team: str) -> Manifest:
    """Deny all traffic that no other policy allows."""
    return _policy("default-deny", team, {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})


def allow_dns(team: str) -> Manifest:
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
    """Allow traffic among the team's training pods on a run's ports."""
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
    """Allow HTTPS to these blocks, except link-local addresses."""
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
    """Allow HTTP to services of the pod's node, each at one link-local address."""
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
    found = [default_deny(team), allow_dns(team), allow_run_traffic(team), allow_monitoring(team)]
    if egress_cidrs:
        found.append(allow_object_storage(team, egress_cidrs))
    if node_services:
        found.append(allow_node_services(team, node_services))
    return found
