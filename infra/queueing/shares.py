"""What a team may hold by count of resources, for schedulers that know no flavors.

Kueue counts each pool by itself. Volcano and YuniKorn count a queue's resources whatever node they are
on, so a team's nodes of all pools are added up here, and which pool a pod may use is said by the pod alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from infra.domain import naming, quantity
from infra.domain.pools import NodePool
from infra.queueing.quotas import Amounts, QueuesArgs, QueueTeam


def _sum(pools: Iterable[NodePool], nodes: Mapping[str, int]) -> dict[str, int]:
    total: dict[str, int] = {}
    for pool in pools:
        for resource, amount in pool.node_quota.items():
            total[resource] = total.get(resource, 0) + amount * nodes.get(pool.name, 0)
    if not any(pool.efa_per_node for pool in pools):
        total.pop(naming.EFA, None)
    return total


def everything(args: QueuesArgs) -> dict[str, int]:
    """All GPU nodes at their largest."""
    return _sum(args.pools, {pool.name: pool.max for pool in args.pools})


def most(team: QueueTeam, args: QueuesArgs) -> dict[str, int]:
    """The most that a team may hold: every pool, within its quota."""
    pools = everything(args)
    return {resource: min(n, team.quota.get(resource, n)) for resource, n in pools.items()}


def guaranteed(team: QueueTeam, args: QueuesArgs) -> dict[str, int]:
    """What is the team's whenever it wants it; never above `most`, which schedulers refuse."""
    most_of = most(team, args)
    nodes = _sum(args.pools, team.guaranteed)
    return {resource: min(nodes[resource], most_of[resource]) for resource in most_of}


def quantities(amounts: Amounts) -> dict[str, str]:
    """As Kubernetes writes them."""
    return {resource: _quantity(resource, amount) for resource, amount in amounts.items()}


def _quantity(resource: str, amount: int) -> str:
    if resource == "cpu":
        return quantity.cpu(amount)
    return quantity.memory(amount) if resource == "memory" else str(amount)
