"""Settings of a pool's EC2 nodes, shared by managed node groups and Karpenter."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import pulumi
import pulumi_aws.ec2 as ec2
import pulumi_aws.eks as aws_eks

from infra.domain.catalog import Architecture
from infra.domain.pools import NodePool, ReservationKind, Taint
from infra.sites.aws.outputs import Place

ROOT_DEVICE: Final = "/dev/xvda"
"""Root volume of Amazon Linux 2023."""
ROOT_IOPS: Final = 6_000
ROOT_MIB_PER_S: Final = 500
"""gp3 defaults to 3,000 IOPS and 125 MiB/s, with which unpacking a 20 GiB image takes minutes on a node that costs
tens of dollars an hour."""

BATCH_MINUTES: Final = 30
"""Limit for one batch of an update: 15 minutes of draining, after which EKS gives up, and a GPU node's start."""
START_AND_STOP_MINUTES: Final = 90
"""Limit for the creation or deletion of a group, all of whose nodes start or drain at once."""

_SET_BY_KUBERNETES: Final = ("kubernetes.io", "k8s.io")
"""Label domains that kubelets may not set and that EKS rejects."""


def group_timeouts(nodes: int, parallel: int) -> pulumi.CustomTimeouts:
    """Return Pulumi's time limits for a managed node group of up to `nodes`, `parallel` of them updated at once.

    An update replaces one batch after another. The AWS provider's default of one hour would end an update of
    more than two batches of GPU nodes as failed, while EKS goes on with it.
    """
    batches = math.ceil(nodes / parallel)
    update = START_AND_STOP_MINUTES + batches * BATCH_MINUTES
    once = f"{START_AND_STOP_MINUTES}m"
    return pulumi.CustomTimeouts(create=once, update=f"{update}m", delete=once)


def own_labels(pool: NodePool) -> dict[str, str]:
    """Return the pool's labels without those that the cloud provider sets (zone, instance type)."""
    return {
        key: value
        for key, value in pool.labels().items()
        if not key.partition("/")[0].endswith(_SET_BY_KUBERNETES)
    }


def node_group_taints(taints: Iterable[Taint]) -> list[aws_eks.NodeGroupTaintArgs]:
    return [
        aws_eks.NodeGroupTaintArgs(key=taint.key, value=taint.value, effect="NO_SCHEDULE")
        for taint in taints
    ]


def ami_type(pool: NodePool) -> str:
    """Return EKS's type of machine image: with NVIDIA's driver and toolkit for GPU pools."""
    arm = pool.types[0].architecture is Architecture.ARM64
    variant = "NVIDIA" if pool.cards_per_node else "STANDARD"
    return f"AL2023_{'ARM_64' if arm else 'x86_64'}_{variant}"


def is_capacity_block(pool: NodePool) -> bool:
    return pool.reservation is not None and pool.reservation.kind is ReservationKind.CAPACITY_BLOCK


def placement_group(
    name: str, pool: NodePool, place: Place, opts: pulumi.ResourceOptions
) -> ec2.PlacementGroup | None:
    if not pool.placement_group:
        return None
    own = place.own_name(pool)
    return ec2.PlacementGroup(
        f"{name}-{pool.name}-placement",
        name=own,
        strategy="cluster",
        tags={**place.tags, "Name": own},
        opts=opts,
    )
