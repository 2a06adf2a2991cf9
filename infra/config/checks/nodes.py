"""Where nodes come from, and what only some of them can have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from infra.config.checks.parts import Parts
from infra.config.mistakes import Mistake, shown
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


def provider_has_nodes(parts: Parts) -> Iterator[Mistake]:
    """The provider can have such nodes."""
    allowed = _BY_PROVIDER.get(parts.provider)
    for index, pool in parts.pools:
        if allowed and pool.nodes not in allowed:
            yield Mistake(
                path=f"nodePools[{index}].nodes",
                got=shown(pool.nodes.value),
                allowed=f"{_names(allowed)} where cluster.provider is {parts.provider}",
                remedy="choose one of them",
            )


def options(parts: Parts) -> Iterator[Mistake]:
    """Options are on pools whose nodes can have them."""
    for index, pool in parts.pools:
        for field, (key, nodes) in _OPTIONS.items():
            if field in pool.model_fields_set and pool.nodes not in nodes:
                yield Mistake(
                    path=f"nodePools[{index}].{key}",
                    got=f"an option of a pool whose nodes are {pool.nodes.value}",
                    allowed=f"it where nodes are {_names(nodes)}",
                    remedy="remove it, or change nodes",
                )
        if pool.nodes is Nodes.KARPENTER and pool.min:
            yield Mistake(
                path=f"nodePools[{index}].min",
                got=str(pool.min),
                allowed="0 where nodes are karpenter, which come when pods wait for them",
                remedy="set it to 0, or set nodes: managed",
            )


def placement_groups(parts: Parts) -> Iterator[Mistake]:
    """Nodes are only packed together for a network that gains from it."""
    for index, pool in parts.pools:
        if pool.placement_group and pool.network is not Network.EFA:
            yield Mistake(
                path=f"nodePools[{index}].placementGroup",
                got="true in a pool of network tcp",
                allowed="it with network: efa, for it costs capacity and only EFA gains",
                remedy="remove it, or set network: efa",
            )


def reservations(parts: Parts) -> Iterator[Mistake]:
    """A reservation is of one type, and is not spot."""
    for index, pool in parts.pools:
        if pool.reservation is None:
            continue
        if pool.capacity is Capacity.SPOT:
            yield Mistake(
                path=f"nodePools[{index}].reservation",
                got=f"a {pool.reservation.kind.value} in a spot pool",
                allowed="reservations in on-demand pools",
                remedy="set capacity: on-demand, or remove it",
            )
        if len(pool.instance_types) > 1:
            yield Mistake(
                path=f"nodePools[{index}].instanceTypes",
                got=f"{len(pool.instance_types)} types with a reservation",
                allowed="the one type that was reserved",
                remedy="remove the others",
            )


def architectures(parts: Parts) -> Iterator[Mistake]:
    """All nodes of a pool can run the same image."""
    known = catalog.load().types
    for index, pool in parts.pools:
        found = {known[name].architecture.value for name in pool.instance_types if name in known}
        if len(found) > 1:
            yield Mistake(
                path=f"nodePools[{index}].instanceTypes",
                got=f"types of {' and '.join(sorted(found))}",
                allowed="types of one architecture, for a run has one image",
                remedy="make two pools of them",
            )


def autoscalers(parts: Parts) -> Iterator[Mistake]:
    """The autoscaler has pools to work on, and Karpenter's pools have Karpenter."""
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
        yield Mistake(
            path=f"nodePools[{karpenter[0]}].nodes",
            got=f"'karpenter' with autoscaler: {chosen}",
            allowed="karpenter with autoscaler: karpenter",
            remedy="set autoscaler: karpenter, or nodes: managed",
        )


def managed_sizes(parts: Parts) -> Iterator[Mistake]:
    """Queues promise a pool's maximum, so something must be able to bring it about."""
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
            yield Mistake(
                path=f"nodePools[{index}].min",
                got=f"{pool.min} with max {pool.max} and autoscaler: {chosen}",
                allowed="max in a managed pool that nothing adds nodes to, for queues count on them",
                remedy="set autoscaler: cluster-autoscaler, nodes: karpenter, or min to max",
            )


def _idle(chosen: str, nodes: str) -> Mistake:
    return Mistake(
        path="autoscaler",
        got=f"{shown(chosen)} without a pool for it",
        allowed=f"it with a pool whose nodes are {nodes}",
        remedy=f"set nodes: {nodes} on a pool, or autoscaler: none",
    )
