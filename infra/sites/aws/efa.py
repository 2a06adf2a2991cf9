"""EFA: network interfaces of a pool's nodes, managed or Karpenter's, and their security group."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import pulumi
import pulumi_aws.ec2 as ec2
import pulumi_aws.vpc as vpc_rules

from infra.domain.pools import Network, NodePool
from infra.sites.aws.outputs import component


class InterfaceType(StrEnum):
    ENA = "interface"
    """IP traffic."""
    EFA_ONLY = "efa-only"
    """RDMA only, without IP address: 32 addresses per p5 node would exhaust a subnet."""


@dataclass(frozen=True, kw_only=True)
class Interface:
    card: int
    """Index of the network card."""
    device: int
    """Index of the interface on its card."""
    type: InterfaceType


PRIMARY = Interface(card=0, device=0, type=InterfaceType.ENA)
"""Has the node's address and those of its pods."""


def interfaces(pool: NodePool) -> tuple[Interface, ...]:
    """Return all interfaces of a node, the primary one first; only that one without EFA.

    EC2's guide recommends for multi-card types: IP on card 0, and an EFA-only interface on every EFA-capable card,
    as second device of card 0 and only device of others. Types of a mixed pool share one template, so only cards
    that all of them have are used.
    """
    if pool.network is not Network.EFA:
        return (PRIMARY,)
    common = set.intersection(*(set(t.efa_card_indexes) for t in pool.types))
    return (
        PRIMARY,
        *(
            Interface(card=card, device=0 if card else 1, type=InterfaceType.EFA_ONLY)
            for card in sorted(common)
        ),
    )


def security_group(
    name: str, cluster: str, vpc_id: pulumi.Input[str], opts: pulumi.ResourceOptions
) -> pulumi.Output[str]:
    """Create the group that allows all traffic between members, in both directions, and return its id.

    EFA's packets bypass IP, so no CIDR matches them: both directions must name the group itself. Other traffic
    uses the cluster's group, which such nodes have, too.
    """
    child = pulumi.ResourceOptions(parent=component("AwsEfaSecurityGroup", name, opts))
    group = ec2.SecurityGroup(
        f"{name}-group",
        description="EFA between nodes",
        vpc_id=vpc_id,
        tags={"Name": f"{cluster}-efa"},
        opts=child,
    )
    for direction, rule in (
        ("in", vpc_rules.SecurityGroupIngressRule),
        ("out", vpc_rules.SecurityGroupEgressRule),
    ):
        rule(
            f"{name}-{direction}",
            security_group_id=group.id,
            referenced_security_group_id=group.id,
            ip_protocol="-1",
            opts=child,
        )
    return group.id
