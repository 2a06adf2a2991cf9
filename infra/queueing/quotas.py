"""Each team's share of each pool, in nodes: guarantee, borrowing limit, lending limit.

All guarantees and the cohort's own quota add up to the pools. Limits only restrict who may use what.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from infra.domain import prices
from infra.domain.pools import NodePool
from infra.domain.tier import TIERS
from infra.sections.teams import TeamConfig

_ROUNDING: Final = 1e-9
"""So that a cap of exactly n nodes buys n despite floating-point error."""


Amounts = Mapping[str, int]
"""By resource: millicores, bytes, devices."""


@dataclass(frozen=True, kw_only=True)
class QueuesArgs:
    cohort: str
    pools: tuple[NodePool, ...]
    teams: tuple[TeamConfig, ...]
    gang_scale_up: bool = False
    """Whether Cluster Autoscaler answers Kueue's ProvisioningRequests."""
    placeholder: str = ""
    """Image of the scheduler's own pods, from the stack's mirror if it has one."""


@dataclass(frozen=True, kw_only=True)
class Share:
    guaranteed: int
    borrowing: int | None
    """None: unlimited."""
    lending: int | None
    """None: the whole guarantee."""


def flavor_order(tier: str, pools: Sequence[NodePool]) -> list[NodePool]:
    """Return pools in the order in which a tier tries them; equal ones keep their order."""
    order = TIERS[tier].purchase_order
    return sorted(pools, key=lambda pool: order.index(pool.purchase_model))


def guaranteed_usd_per_hour(team: TeamConfig, pools: Sequence[NodePool]) -> float:
    """Return the highest price of a team's guaranteed nodes that may be on-demand; unknown prices count as 0."""
    return sum(
        team.guaranteed.get(pool.name, 0) * (prices.per_node(pool) or 0.0)
        for pool in pools
        if prices.paid_on_demand(pool)
    )


def _affordable(team: TeamConfig, pools: Sequence[NodePool]) -> dict[str, int]:
    """Return the nodes beyond the guarantee that the cost limit pays for, preferred pools first."""
    if team.on_demand_usd_per_hour is None:
        return {}
    left = team.on_demand_usd_per_hour - guaranteed_usd_per_hour(team, pools)
    found: dict[str, int] = {}
    for pool in flavor_order(team.tier, pools):
        if not prices.paid_on_demand(pool):
            continue
        usd = prices.per_node(pool)
        nodes = math.floor(left / usd + _ROUNDING) if usd else 0
        found[pool.name] = max(0, min(nodes, pool.max - team.guaranteed.get(pool.name, 0)))
        left -= found[pool.name] * (usd or 0.0)
    return found


def shares(team: TeamConfig, pools: Sequence[NodePool]) -> dict[str, Share]:
    affordable = _affordable(team, pools)
    found: dict[str, Share] = {}
    for pool in pools:
        limits = [m[pool.name] for m in (team.borrowing, affordable) if pool.name in m]
        found[pool.name] = Share(
            guaranteed=team.guaranteed.get(pool.name, 0),
            borrowing=min(limits, default=None),
            lending=team.lending.get(pool.name),
        )
    return found


def usable(team: TeamConfig, pools: Sequence[NodePool]) -> list[NodePool]:
    """Return the pools that the team may use at all, in the order in which its queue tries them."""
    found = shares(team, pools)
    return [
        pool
        for pool in flavor_order(team.tier, pools)
        if found[pool.name].guaranteed or found[pool.name].borrowing != 0
    ]


def most_nodes(
    team: TeamConfig, pools: Sequence[NodePool], teams: Sequence[TeamConfig]
) -> dict[str, int]:
    """Return the most nodes of each pool that a team can hold while all others are idle."""
    kept = {
        pool.name: sum(_kept(other, pool) for other in teams if other.name != team.name)
        for pool in pools
    }
    found: dict[str, int] = {}
    for pool in pools:
        share = shares(team, pools)[pool.name]
        left = pool.max - share.guaranteed - kept[pool.name]
        found[pool.name] = share.guaranteed + (
            left if share.borrowing is None else min(left, share.borrowing)
        )
    return found


def _kept(team: TeamConfig, pool: NodePool) -> int:
    """Return the guaranteed nodes that a team does not lend."""
    own = team.guaranteed.get(pool.name, 0)
    return own - min(own, team.lending.get(pool.name, own))
