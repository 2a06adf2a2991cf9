"""What a team may hold by count of resources, for schedulers that know no flavors.

Kueue counts each pool by itself. Volcano and YuniKorn count a queue's resources whatever node they are
on, so a team's nodes of all pools are added up here, and which pool a pod may use is said by the pod alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from infra.domain import naming, quantity
from infra.domain.pools import NodePool

Amounts = Mapping[str, int]
"""By resource: millicores, bytes, devices."""


@dataclass(frozen=True, kw_only=True)
class QueueShare:
    """One team's queue."""

    team: str
    quota: Amounts
    """The most that it may hold at once; a resource that is not named is bound by the pools alone."""
    guaranteed: Mapping[str, int] = field(default_factory=dict)
    """Nodes by pool that are the team's whenever it wants them; others may use them meanwhile."""


@dataclass(frozen=True, kw_only=True)
class SharedQueuesArgs:
    """Pools that can be queued for, and who queues."""

    cohort: str
    pools: tuple[NodePool, ...]
    shares: tuple[QueueShare, ...]
    placeholder: str
    """Image of the pods that YuniKorn keeps room with, by digest."""


def _sum(pools: Iterable[NodePool], nodes: Mapping[str, int]) -> dict[str, int]:
    total: dict[str, int] = {}
    for pool in pools:
        for resource, amount in pool.node_quota.items():
            total[resource] = total.get(resource, 0) + amount * nodes.get(pool.name, 0)
    if not any(pool.efa_per_node for pool in pools):
        total.pop(naming.EFA, None)
    return total


def everything(args: SharedQueuesArgs) -> dict[str, int]:
    """All GPU nodes at their largest."""
    return _sum(args.pools, {pool.name: pool.max for pool in args.pools})


def most(share: QueueShare, args: SharedQueuesArgs) -> dict[str, int]:
    """The most that a team may hold: every pool, within its quota."""
    pools = everything(args)
    return {resource: min(n, share.quota.get(resource, n)) for resource, n in pools.items()}


def guaranteed(share: QueueShare, args: SharedQueuesArgs) -> dict[str, int]:
    """What is the team's whenever it wants it; never above `most`, which schedulers refuse."""
    most_of = most(share, args)
    nodes = _sum(args.pools, share.guaranteed)
    return {resource: min(nodes[resource], most_of[resource]) for resource in most_of}


def quantities(amounts: Amounts) -> dict[str, str]:
    """As Kubernetes writes them."""
    return {resource: _quantity(resource, amount) for resource, amount in amounts.items()}


def _quantity(resource: str, amount: int) -> str:
    if resource == "cpu":
        return quantity.cpu(amount)
    return quantity.memory(amount) if resource == "memory" else str(amount)
