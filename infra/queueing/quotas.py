"""What each team may have of each pool, in nodes: its own, what it may borrow, what it lends.

All guarantees and what the cohort keeps add up to the pools. Limits only narrow who may use what.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from infra.domain.pools import NodePool, PurchaseModel
from infra.domain.tier import TIERS

_ROUNDING: Final = 1e-9
"""A cap of exactly n nodes buys n, whatever the last bit of the quotient is."""


Amounts = Mapping[str, int]
"""By resource: millicores, bytes, devices."""


@dataclass(frozen=True, kw_only=True)
class QueueTeam:
    """What a queue needs to know of its team."""

    name: str
    tier: str
    guaranteed: Mapping[str, int] = field(default_factory=dict)
    """Nodes by pool."""
    borrowing: Mapping[str, int] = field(default_factory=dict)
    """Most nodes beyond its own, by pool; where none is named, all that others leave."""
    lending: Mapping[str, int] = field(default_factory=dict)
    """Most of its own nodes that others may use meanwhile, by pool; where none is named, all."""
    on_demand_usd_per_hour: float | None = None
    """Most that its runs on on-demand pools may cost; None: no bound."""
    fair_weight: int = 1
    quota: Amounts = field(default_factory=dict)
    """The most that it may hold at once; a resource that is not named is bound by the pools alone."""


@dataclass(frozen=True, kw_only=True)
class QueuesArgs:
    """The pools that can be queued for, and the teams that queue."""

    cohort: str
    pools: tuple[NodePool, ...]
    teams: tuple[QueueTeam, ...]
    gang_scale_up: bool = False
    """Whether Cluster Autoscaler answers Kueue's ProvisioningRequests."""
    placeholder: str = ""
    """Image of the scheduler's own pods, from the stack's mirror if it has one."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """A team's nodes of one pool."""

    guaranteed: int
    borrowing: int | None
    """None: without a limit of its own."""
    lending: int | None
    """None: all that is guaranteed."""


def flavor_order(tier: str, pools: Sequence[NodePool]) -> list[NodePool]:
    """Pools in the order in which a tier tries them; alike ones as listed."""
    order = TIERS[tier].purchase_order
    return sorted(pools, key=lambda pool: order.index(pool.purchase_model))


def by_the_hour(pool: NodePool) -> bool:
    """Whether each hour of a node is bought on demand: neither spot nor paid for already."""
    return pool.purchase_model is PurchaseModel.HOURLY


def guaranteed_usd_per_hour(team: QueueTeam, pools: Sequence[NodePool]) -> float:
    """What a team's own on-demand nodes cost, where prices are known."""
    return sum(
        team.guaranteed.get(pool.name, 0) * (pool.usd_per_node_hour or 0.0)
        for pool in pools
        if by_the_hour(pool)
    )


def _affordable(team: QueueTeam, pools: Sequence[NodePool]) -> dict[str, int]:
    """Nodes beyond its own that its cap pays for, by pool, the first pools first."""
    if team.on_demand_usd_per_hour is None:
        return {}
    left = team.on_demand_usd_per_hour - guaranteed_usd_per_hour(team, pools)
    found: dict[str, int] = {}
    for pool in flavor_order(team.tier, pools):
        if not by_the_hour(pool):
            continue
        usd = pool.usd_per_node_hour
        nodes = math.floor(left / usd + _ROUNDING) if usd else 0
        found[pool.name] = max(0, min(nodes, pool.max - team.guaranteed.get(pool.name, 0)))
        left -= found[pool.name] * (usd or 0.0)
    return found


def shares(team: QueueTeam, pools: Sequence[NodePool]) -> dict[str, Share]:
    """A team's share of every pool, by pool."""
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


def usable(team: QueueTeam, pools: Sequence[NodePool]) -> list[NodePool]:
    """Pools of which the team may have any node, in the order in which its queue tries them."""
    found = shares(team, pools)
    return [
        pool
        for pool in flavor_order(team.tier, pools)
        if found[pool.name].guaranteed or found[pool.name].borrowing != 0
    ]


def most_nodes(
    team: QueueTeam, pools: Sequence[NodePool], teams: Sequence[QueueTeam]
) -> dict[str, int]:
    """The most nodes of each pool that a team can ever have at once, when all others are idle."""
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


def _kept(team: QueueTeam, pool: NodePool) -> int:
    """Nodes of its own that a team does not lend."""
    own = team.guaranteed.get(pool.name, 0)
    return own - min(own, team.lending.get(pool.name, own))
