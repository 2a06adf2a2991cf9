"""Where the nodes of pools come from, and which options and networks they support."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from infra.config.errors import ConfigIssue, shown
from infra.config.partial import Check, PartialStack
from infra.config.sections.node_pools import (
    PoolConfig,
    read_pools,
)
from infra.domain import catalog
from infra.domain.pools import (
    Autoscaler,
    Capacity,
    Fallback,
    Network,
    Nodes,
    Reservation,
    ReservationKind,
    Workload,
)

_BY_PROVIDER: Final = {
    "eks": (Nodes.MANAGED, Nodes.KARPENTER),
    "existing": (Nodes.EXISTING, Nodes.PROCESS, Nodes.KWOK),
}


_ON_EC2: Final = (Nodes.MANAGED, Nodes.KARPENTER)


_OPTIONS: Final = {
    "root_gib": ("rootGiB", _ON_EC2),
    "placement_group": ("placementGroup", _ON_EC2),
    "reservation": ("reservation", _ON_EC2),
    "fallback": ("fallback", (Nodes.KARPENTER,)),
    "max_unavailable": ("maxUnavailable", (Nodes.MANAGED,)),
}
"""Options of a pool, and the nodes that can have them."""


def _names(nodes: tuple[Nodes, ...]) -> str:
    return " or ".join(n.value for n in nodes)


def check_node_provider(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require nodes that the cluster's provider offers."""
    allowed = _BY_PROVIDER.get(stack.provider)
    for index, pool in read_pools(stack):
        if allowed and pool.nodes not in allowed:
            yield ConfigIssue(
                path=f"nodePools[{index}].nodes",
                code="nodes-provider",
                problem=f"{shown(pool.nodes.value)} is not available with cluster.provider: "
                f"{stack.provider}",
                valid=f"must be {_names(allowed)}",
                action="choose one of them",
            )


def check_node_options(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Reject pool options that the pool's nodes do not support."""
    for index, pool in read_pools(stack):
        for field, (key, nodes) in _OPTIONS.items():
            if field in pool.model_fields_set and pool.nodes not in nodes:
                yield ConfigIssue(
                    path=f"nodePools[{index}].{key}",
                    code="pool-option",
                    problem=f"not valid on nodes that are {pool.nodes.value}",
                    valid=f"requires nodes: {_names(nodes)}",
                    action="remove it, or change nodes",
                )
        if pool.nodes is Nodes.KARPENTER and pool.min:
            yield ConfigIssue(
                path=f"nodePools[{index}].min",
                code="karpenter-min",
                problem=f"{pool.min} is not valid for nodes that are karpenter",
                valid="must be 0: Karpenter launches nodes when pods wait",
                action="set it to 0, or set nodes: managed",
            )


def check_placement_groups(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Allow placement groups in EFA pools only."""
    for index, pool in read_pools(stack):
        if pool.placement_group and pool.network is not Network.EFA:
            yield ConfigIssue(
                path=f"nodePools[{index}].placementGroup",
                code="placement-group-network",
                problem="a placement group without EFA costs capacity and gains nothing",
                valid="requires network: efa",
                action="remove it, or set network: efa",
            )


def check_reservations(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require one instance type and on-demand capacity for a reservation."""
    for index, pool in read_pools(stack):
        if pool.reservation is None:
            continue
        if pool.capacity is Capacity.SPOT:
            yield ConfigIssue(
                path=f"nodePools[{index}].reservation",
                code="reservation-on-spot",
                problem=f"a {pool.reservation.kind.value} in a spot pool",
                valid="requires capacity: on-demand",
                action="set capacity: on-demand, or remove it",
            )
        yield from _check_clock(f"nodePools[{index}].reservation", pool.reservation.reservation)
        if len(pool.instance_types) > 1:
            yield ConfigIssue(
                path=f"nodePools[{index}].instanceTypes",
                code="reservation-types",
                problem=f"{len(pool.instance_types)} types with a reservation",
                valid="must be the one reserved type",
                action="remove the others",
            )


def check_timed_blocks(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require something that starts a capacity block's nodes where the block has a clock."""
    chosen = stack.raw.get("autoscaler", Autoscaler.NONE.value)
    if stack.provider != "eks" or chosen == Autoscaler.CLUSTER_AUTOSCALER:
        return
    for index, pool in read_pools(stack):
        if pool.reservation is None or pool.nodes is not Nodes.MANAGED:
            continue
        reserved = pool.reservation.reservation
        if reserved.start and not any(_check_clock("", reserved)):
            yield ConfigIssue(
                path=f"nodePools[{index}].nodes",
                code="timed-block-unscaled",
                problem="'managed' with start and end of a capacity block, and nothing scales its node group "
                f"(autoscaler: {chosen})",
                valid="requires nodes: karpenter, or autoscaler: cluster-autoscaler",
                action="set nodes: karpenter and min: 0, or remove start and end",
            )


def _check_clock(path: str, reserved: Reservation) -> Iterator[ConfigIssue]:
    """Require both ends of a capacity block's time, in this order, and none of other reservations."""
    if reserved.start is None and reserved.end is None:
        return
    if reserved.kind is not ReservationKind.CAPACITY_BLOCK:
        yield ConfigIssue(
            path=path,
            code="reservation-clock",
            problem=f"start or end in a {reserved.kind.value}, which ends when it is cancelled",
            valid="only a capacity-block has them",
            action="remove start and end",
        )
    elif reserved.start is None or reserved.end is None:
        yield ConfigIssue(
            path=path,
            code="reservation-clock",
            problem=f"{'start' if reserved.start is None else 'end'} is missing",
            valid="requires both start and end, or neither",
            action="add what aws ec2 describe-capacity-reservations shows",
        )
    elif reserved.end <= reserved.start:
        yield ConfigIssue(
            path=path,
            code="reservation-clock",
            problem="end is not after start",
            valid="must be the times of the capacity block",
            action="correct them",
        )


def check_fallbacks(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Allow a fallback to on-demand in spot pools only."""
    for index, pool in read_pools(stack):
        if pool.fallback is Fallback.ON_DEMAND and pool.capacity is not Capacity.SPOT:
            yield ConfigIssue(
                path=f"nodePools[{index}].fallback",
                code="fallback-capacity",
                problem="a fallback in a pool that is on-demand already",
                valid="requires capacity: spot",
                action="remove it, or set capacity: spot",
            )


def check_architectures(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require one CPU architecture per pool: a run has one image."""
    known = catalog.load().types
    for index, pool in read_pools(stack):
        found = {known[name].architecture.value for name in pool.instance_types if name in known}
        if len(found) > 1:
            yield ConfigIssue(
                path=f"nodePools[{index}].instanceTypes",
                code="mixed-architectures",
                problem=f"types of {' and '.join(sorted(found))} are mixed",
                valid="must have one architecture: a run has one image",
                action="split the pool",
            )


def check_autoscaler(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require pools for the autoscaler, and Karpenter for Karpenter's pools."""
    if stack.provider != "eks" or not read_pools(stack):
        return
    chosen = stack.raw.get("autoscaler", Autoscaler.NONE.value)
    karpenter = [i for i, pool in read_pools(stack) if pool.nodes is Nodes.KARPENTER]
    managed = [i for i, pool in read_pools(stack) if pool.nodes is Nodes.MANAGED]
    if chosen == Autoscaler.KARPENTER and not karpenter:
        yield _idle(chosen, "karpenter")
    if chosen == Autoscaler.CLUSTER_AUTOSCALER and not managed:
        yield _idle(chosen, "managed")
    if karpenter and chosen != Autoscaler.KARPENTER:
        yield ConfigIssue(
            path=f"nodePools[{karpenter[0]}].nodes",
            code="karpenter-autoscaler",
            problem="'karpenter' requires autoscaler: karpenter",
            valid=f"must be managed with autoscaler: {chosen}",
            action="set autoscaler: karpenter, or nodes: managed",
        )


def check_fixed_size_pools(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require min = max where nothing adds nodes: queues count on a pool's maximum."""
    chosen = stack.raw.get("autoscaler", Autoscaler.NONE.value)
    if stack.provider != "eks" or chosen == Autoscaler.CLUSTER_AUTOSCALER:
        return
    for index, pool in read_pools(stack):
        if pool.reservation is None and stack.raw["nodePools"][index].get("reservation"):
            continue  # The reservation is invalid, which is reported.
        kind = pool.reservation.kind if pool.reservation else None
        if (
            pool.nodes is Nodes.MANAGED
            and pool.workload is Workload.GPU_TRAINING
            and pool.min < pool.max
            and kind is not ReservationKind.CAPACITY_BLOCK
        ):
            yield ConfigIssue(
                path=f"nodePools[{index}].min",
                code="fixed-size-pool",
                problem=f"{pool.min} is below max ({pool.max}), and nothing adds nodes (autoscaler: "
                f"{chosen})",
                valid="must equal max: queues count on all nodes of a managed pool",
                action="set autoscaler: cluster-autoscaler, nodes: karpenter, or min to max",
            )


def _idle(chosen: str, nodes: str) -> ConfigIssue:
    return ConfigIssue(
        path="autoscaler",
        code="autoscaler-unused",
        problem=f"{shown(chosen)} has no pool to scale",
        valid=f"requires a pool with nodes: {nodes}",
        action=f"set nodes: {nodes} on a pool, or autoscaler: none",
    )


def check_fabric(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require RoCE and fabric facts on existing nodes only."""
    for index, pool in read_pools(stack):
        path = f"nodePools[{index}]"
        roce = pool.network is Network.ROCE
        if roce and pool.nodes is not Nodes.EXISTING:
            yield ConfigIssue(
                path=f"{path}.network",
                code="roce-nodes",
                problem=f"'roce' is not available on nodes that are {pool.nodes.value}",
                valid="requires nodes: existing (EC2 offers EFA instead)",
                action="set network: efa or tcp",
            )
        elif roce and "rdmaResource" not in _facts(stack, index):
            yield ConfigIssue(
                path=f"{path}.fabric.rdmaResource",
                code="missing",
                problem="missing",
                valid="network: roce requires the resource through which pods get adapters, "
                "such as rdma/hca",
                action="add it",
            )
        if pool.fabric is None:
            continue
        if pool.nodes is not Nodes.EXISTING:
            yield ConfigIssue(
                path=f"{path}.fabric",
                code="fabric-nodes",
                problem=f"not valid on nodes that are {pool.nodes.value}",
                valid="requires nodes: existing (the fabric of other nodes is known)",
                action="remove it",
            )
        elif not roce:
            yield from _only_roce(path, pool)


def _facts(stack: PartialStack, index: int) -> dict[str, Any]:
    """Return the pool's `fabric` as the file has it, valid or not."""
    named = stack.raw["nodePools"][index].get("fabric")
    return named if isinstance(named, dict) else {}


def _only_roce(path: str, pool: PoolConfig) -> Iterator[ConfigIssue]:
    given = pool.fabric.model_dump(by_alias=True) if pool.fabric else {}
    for key in ("rdmaResource", "adapters", "gidIndex"):
        if given.get(key) not in (None, ()):
            yield ConfigIssue(
                path=f"{path}.fabric.{key}",
                code="fabric-network",
                problem=f"not valid with network: {pool.network.value}",
                valid="requires network: roce",
                action="remove it, or set network: roce",
            )


CHECKS: Final[tuple[Check, ...]] = (
    check_node_provider,
    check_node_options,
    check_placement_groups,
    check_reservations,
    check_timed_blocks,
    check_fallbacks,
    check_architectures,
    check_autoscaler,
    check_fixed_size_pools,
    check_fabric,
)
