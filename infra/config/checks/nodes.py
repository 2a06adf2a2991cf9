"""Where nodes come from, and what only some of them can have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from infra.config.checks.partial import PartialStack
from infra.config.errors import ConfigIssue, shown
from infra.domain import catalog
from infra.domain.pools import Autoscaler, Capacity, Network, Nodes, ReservationKind, Workload

_BY_PROVIDER: Final = {
    "eks": (Nodes.MANAGED, Nodes.KARPENTER),
    "existing": (Nodes.EXISTING, Nodes.PROCESS, Nodes.KWOK),
}
_ON_EC2: Final = (Nodes.MANAGED, Nodes.KARPENTER)
_OPTIONS: Final = {
    "root_gib": ("rootGiB", _ON_EC2),
    "placement_group": ("placementGroup", _ON_EC2),
    "reservation": ("reservation", _ON_EC2),
    "max_unavailable": ("maxUnavailable", (Nodes.MANAGED,)),
}
"""Options of a pool, and the nodes that can have them."""


def _names(nodes: tuple[Nodes, ...]) -> str:
    return " or ".join(n.value for n in nodes)


def check_node_provider(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require nodes that the cluster's provider offers."""
    allowed = _BY_PROVIDER.get(parts.provider)
    for index, pool in parts.pools:
        if allowed and pool.nodes not in allowed:
            yield ConfigIssue(
                path=f"nodePools[{index}].nodes",
                problem=f"got {shown(pool.nodes.value)}",
                valid=f"allowed {_names(allowed)} where cluster.provider is {parts.provider}",
                action="choose one of them",
            )


def check_node_options(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Reject pool options that the pool's nodes do not support."""
    for index, pool in parts.pools:
        for field, (key, nodes) in _OPTIONS.items():
            if field in pool.model_fields_set and pool.nodes not in nodes:
                yield ConfigIssue(
                    path=f"nodePools[{index}].{key}",
                    problem=f"got an option of a pool whose nodes are {pool.nodes.value}",
                    valid=f"allowed it where nodes are {_names(nodes)}",
                    action="remove it, or change nodes",
                )
        if pool.nodes is Nodes.KARPENTER and pool.min:
            yield ConfigIssue(
                path=f"nodePools[{index}].min",
                problem=f"got {pool.min}",
                valid="allowed 0 where nodes are karpenter, which come when pods wait for them",
                action="set it to 0, or set nodes: managed",
            )


def check_placement_groups(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Allow placement groups in EFA pools only."""
    for index, pool in parts.pools:
        if pool.placement_group and pool.network is not Network.EFA:
            yield ConfigIssue(
                path=f"nodePools[{index}].placementGroup",
                problem="got true in a pool of network tcp",
                valid="allowed it with network: efa, for it costs capacity and only EFA gains",
                action="remove it, or set network: efa",
            )


def check_reservations(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require one instance type and on-demand capacity for a reservation."""
    for index, pool in parts.pools:
        if pool.reservation is None:
            continue
        if pool.capacity is Capacity.SPOT:
            yield ConfigIssue(
                path=f"nodePools[{index}].reservation",
                problem=f"got a {pool.reservation.kind.value} in a spot pool",
                valid="allowed reservations in on-demand pools",
                action="set capacity: on-demand, or remove it",
            )
        if len(pool.instance_types) > 1:
            yield ConfigIssue(
                path=f"nodePools[{index}].instanceTypes",
                problem=f"got {len(pool.instance_types)} types with a reservation",
                valid="allowed the one type that was reserved",
                action="remove the others",
            )


def check_architectures(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require one CPU architecture per pool: a run has one image."""
    known = catalog.load().types
    for index, pool in parts.pools:
        found = {known[name].architecture.value for name in pool.instance_types if name in known}
        if len(found) > 1:
            yield ConfigIssue(
                path=f"nodePools[{index}].instanceTypes",
                problem=f"got types of {' and '.join(sorted(found))}",
                valid="allowed types of one architecture, for a run has one image",
                action="make two pools of them",
            )


def check_autoscaler(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require pools for the autoscaler, and Karpenter for Karpenter's pools."""
    if parts.provider != "eks":
        return
    chosen = parts.raw.get("autoscaler", Autoscaler.NONE.value)
    karpenter = [i for i, pool in parts.pools if pool.nodes is Nodes.KARPENTER]
    managed = [i for i, pool in parts.pools if pool.nodes is Nodes.MANAGED]
    if chosen == Autoscaler.KARPENTER and not karpenter:
        yield _idle(chosen, "karpenter")
    if chosen == Autoscaler.CLUSTER_AUTOSCALER and not managed:
        yield _idle(chosen, "managed")
    if karpenter and chosen != Autoscaler.KARPENTER:
        yield ConfigIssue(
            path=f"nodePools[{karpenter[0]}].nodes",
            problem=f"got 'karpenter' with autoscaler: {chosen}",
            valid="allowed karpenter with autoscaler: karpenter",
            action="set autoscaler: karpenter, or nodes: managed",
        )


def check_fixed_size_pools(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require min = max where nothing adds nodes: queues count on a pool's maximum."""
    chosen = parts.raw.get("autoscaler", Autoscaler.NONE.value)
    if parts.provider != "eks" or chosen == Autoscaler.CLUSTER_AUTOSCALER:
        return
    for index, pool in parts.pools:
        kind = pool.reservation.kind if pool.reservation else None
        if (
            pool.nodes is Nodes.MANAGED
            and pool.workload is Workload.GPU_TRAINING
            and pool.min < pool.max
            and kind is not ReservationKind.CAPACITY_BLOCK
        ):
            yield ConfigIssue(
                path=f"nodePools[{index}].min",
                problem=f"got {pool.min} with max {pool.max} and autoscaler: {chosen}",
                valid="allowed max in a managed pool that nothing adds nodes to, for queues count on them",
                action="set autoscaler: cluster-autoscaler, nodes: karpenter, or min to max",
            )


def _idle(chosen: str, nodes: str) -> ConfigIssue:
    return ConfigIssue(
        path="autoscaler",
        problem=f"got {shown(chosen)} without a pool for it",
        valid=f"allowed it with a pool whose nodes are {nodes}",
        action=f"set nodes: {nodes} on a pool, or autoscaler: none",
    )
