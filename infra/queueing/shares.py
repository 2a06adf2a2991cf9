"""A team's share as totals of resources, for schedulers without flavors.

Kueue counts each pool separately. Volcano and YuniKorn count a queue's resources on all nodes together, so a
team's nodes of all pools are summed here; only the pod's affinity limits the pools that it may use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from infra.domain import naming, quantity
from infra.domain.pools import NodePool
from infra.queueing.quotas import Amounts, QueuesArgs
from infra.sections.teams import TeamConfig


def _sum(pools: Iterable[NodePool], nodes: Mapping[str, int]) -> dict[str, int]:
    total: dict[str, int] = {}
    for pool in pools:
        for resource, amount in pool.node_quota.items():
            total[resource] = total.get(resource, 0) + amount * nodes.get(pool.name, 0)
    if not any(pool.efa_per_node for pool in pools):
        total.pop(naming.EFA, None)
    return total


def everything(args: QueuesArgs) -> dict[str, int]:
    """Return the resources of all GPU pools at their maximum size."""
    return _sum(args.pools, {pool.name: pool.max for pool in args.pools})


def most(team: TeamConfig, args: QueuesArgs) -> dict[str, int]:
    """Return the most that a team may hold: every pool, within its quota."""
    pools = everything(args)
    return {resource: min(n, team.amounts.get(resource, n)) for resource, n in pools.items()}


def guaranteed(team: TeamConfig, args: QueuesArgs) -> dict[str, int]:
    """Return the guarantee, capped at `most`: schedulers reject a guarantee above the maximum."""
    most_of = most(team, args)
    nodes = _sum(args.pools, team.guaranteed)
    return {resource: min(nodes[resource], most_of[resource]) for resource in most_of}


def quantities(amounts: Amounts) -> dict[str, str]:
    return {resource: _quantity(resource, amount) for resource, amount in amounts.items()}


def _quantity(resource: str, amount: int) -> str:
    if resource == "cpu":
        return quantity.cpu(amount)
    return quantity.memory(amount) if resource == "memory" else str(amount)
