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
                code="nodes-provider",
                problem=f"{shown(pool.nodes.value)} is not available with cluster.provider: "
                f"{parts.provider}",
                valid=f"must be {_names(allowed)}",
                action="choose one of them",
            )


def check_node_options(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Reject pool options that the pool's nodes do not support."""
    for index, pool in parts.pools:
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


def check_placement_groups(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Allow placement groups in EFA pools only."""
    for index, pool in parts.pools:
        if pool.placement_group and pool.network is not Network.EFA:
            yield ConfigIssue(
                path=f"nodePools[{index}].placementGroup",
                code="placement-group-network",
                problem="a placement group without EFA costs capacity and gains nothing",
                valid="requires network: efa",
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
                code="reservation-on-spot",
                problem=f"a {pool.reservation.kind.value} in a spot pool",
                valid="requires capacity: on-demand",
                action="set capacity: on-demand, or remove it",
            )
        if len(pool.instance_types) > 1:
            yield ConfigIssue(
                path=f"nodePools[{index}].instanceTypes",
                code="reservation-types",
                problem=f"{len(pool.instance_types)} types with a reservation",
                valid="must be the one reserved type",
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
                code="mixed-architectures",
                problem=f"types of {' and '.join(sorted(found))} are mixed",
                valid="must have one architecture: a run has one image",
                action="split the pool",
            )


def check_autoscaler(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require pools for the autoscaler, and Karpenter for Karpenter's pools."""
    if parts.provider != "eks" or not parts.pools:
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
            code="karpenter-autoscaler",
            problem="'karpenter' requires autoscaler: karpenter",
            valid=f"must be managed with autoscaler: {chosen}",
            action="set autoscaler: karpenter, or nodes: managed",
        )


def check_fixed_size_pools(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require min = max where nothing adds nodes: queues count on a pool's maximum."""
    chosen = parts.raw.get("autoscaler", Autoscaler.NONE.value)
    if parts.provider != "eks" or chosen == Autoscaler.CLUSTER_AUTOSCALER:
        return
    for index, pool in parts.pools:
        if pool.reservation is None and parts.raw["nodePools"][index].get("reservation"):
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
