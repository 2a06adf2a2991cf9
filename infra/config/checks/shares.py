"""What a team lends, borrows and may spend, against its guarantees and the pools."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from infra.config.checks.partial import UNKNOWN, PartialStack
from infra.config.errors import ConfigIssue, shown
from infra.config.model import TeamConfig
from infra.domain import catalog
from infra.domain.pools import NodePool, Workload
from infra.domain.tier import TIERS
from infra.queueing import quotas
from infra.queueing.quotas import QueueTeam


def check_lending(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Reject lending above the team's guarantee; unguaranteed nodes are shared anyway."""
    for index, team in parts.teams:
        for name, nodes in team.lending.items():
            own = team.guaranteed.get(name, 0)
            if parts.gpu_pool(name) and nodes > own:
                yield ConfigIssue(
                    path=f"teams[{index}].lending.{name}",
                    problem=f"got {nodes}",
                    valid=f"allowed at most {own}, the nodes of {name} that the team is guaranteed",
                    action="lower it, or remove it to lend all",
                )


def check_borrowing(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Reject borrowing above what the pool has besides the team's own nodes."""
    for index, team in parts.teams:
        for name, nodes in team.borrowing.items():
            found = parts.gpu_pool(name)
            own = team.guaranteed.get(name, 0)
            if found and own <= found[1].max < own + nodes:
                yield ConfigIssue(
                    path=f"teams[{index}].borrowing.{name}",
                    problem=f"got {nodes}",
                    valid=f"allowed at most {found[1].max - own}, what {name} has beside the team's own",
                    action="lower it, or remove it to borrow without a limit",
                )


def check_cost_cap(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Allow on-demand caps for research only, with known prices and above the guarantee's cost."""
    for index, team in parts.teams:
        cap = team.on_demand_usd_per_hour
        if cap is None:
            continue
        path = f"teams[{index}].onDemandUsdPerHour"
        if not TIERS[team.tier].on_demand_capped:
            yield ConfigIssue(
                path=path,
                problem=f"got {cap:g} for a team of tier production",
                valid="allowed it for tier research, for on-demand nodes are what production lives on",
                action="remove it, and set borrowing where production must be bounded",
            )
        elif parts.all_known:
            yield from _affordable(path, cap, team, _on_demand_pools(parts))


def _cents(usd: float) -> float:
    """Rounded up to what people write, so that what a message asks for is enough."""
    return math.ceil(round(usd * 100, 4)) / 100


def _on_demand_pools(parts: PartialStack) -> list[NodePool]:
    pools = [pool.pool(UNKNOWN) for _, pool in parts.pools]
    return [
        pool
        for pool in pools
        if pool.workload is Workload.GPU_TRAINING and quotas.by_the_hour(pool)
    ]


def _affordable(
    path: str, cap: float, team: TeamConfig, pools: Sequence[NodePool]
) -> Iterator[ConfigIssue]:
    unknown = [pool.name for pool in pools if pool.usd_per_node_hour is None]
    if unknown:
        yield ConfigIssue(
            path=path,
            problem=f"got a cap on pools whose price is not known: {', '.join(unknown)}",
            valid=f"allowed a cap where {catalog.DATA.name} has a price of every on-demand pool",
            action="run python -m infra.cli.catalog refresh, or set borrowing in its place",
        )
        return
    own = quotas.guaranteed_usd_per_hour(
        QueueTeam(name=team.name, tier=team.tier, guaranteed=team.guaranteed), pools
    )
    cheapest = min((pool.usd_per_node_hour or 0.0 for pool in pools), default=0.0)
    if cap < _cents(own):
        yield ConfigIssue(
            path=path,
            problem=f"got {cap:g}",
            valid=f"allowed at least {_cents(own):.2f}, what its guaranteed on-demand nodes cost",
            action="raise it, or guarantee fewer",
        )
    elif 0 < cap < _cents(cheapest):
        yield ConfigIssue(
            path=path,
            problem=f"got {cap:g}",
            valid=f"allowed 0 for never, or at least {_cents(cheapest):.2f}, the price of one node",
            action=f"raise it, or set {shown(0)}",
        )
