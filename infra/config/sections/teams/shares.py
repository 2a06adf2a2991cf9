"""What a team lends, borrows and may spend, against its guarantees and the pools."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from infra.config.errors import ConfigIssue
from infra.config.partial import Check, PartialStack
from infra.config.sections.node_pools import (
    all_types_known,
    gpu_pool,
    read_pools,
)
from infra.config.sections.teams.model import TeamConfig, read_teams
from infra.domain import catalog, prices
from infra.domain.pools import NodePool, Workload
from infra.domain.tier import TIERS
from infra.queueing import quotas
from infra.queueing.quotas import QueueTeam


def check_lending(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Reject lending above the team's guarantee; unguaranteed nodes are shared anyway."""
    for index, team in read_teams(stack):
        for name, nodes in team.lending.items():
            own = team.guaranteed.get(name, 0)
            if gpu_pool(stack, name) and nodes > own:
                yield ConfigIssue(
                    path=f"teams[{index}].lending.{name}",
                    code="lending-above-guarantee",
                    problem=f"{nodes} exceeds the team's guarantee",
                    valid=f"must be at most {own}, the nodes of {name} that the team is guaranteed",
                    action="lower it, or remove it to lend all",
                )


def check_borrowing(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Reject borrowing above what the pool has besides the team's own nodes."""
    for index, team in read_teams(stack):
        for name, nodes in team.borrowing.items():
            found = gpu_pool(stack, name)
            own = team.guaranteed.get(name, 0)
            if found and own <= found[1].max < own + nodes:
                yield ConfigIssue(
                    path=f"teams[{index}].borrowing.{name}",
                    code="borrowing-above-pool",
                    problem=f"{nodes} exceeds what the pool can lend",
                    valid=f"must be at most {found[1].max - own}, what {name} has besides the "
                    "team's own nodes",
                    action="lower it, or remove it to borrow without a limit",
                )


def check_cost_cap(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Allow on-demand caps for research only, with known prices and above the guarantee's cost."""
    for index, team in read_teams(stack):
        cap = team.on_demand_usd_per_hour
        if cap is None:
            continue
        path = f"teams[{index}].onDemandUsdPerHour"
        if not TIERS[team.tier].on_demand_capped:
            yield ConfigIssue(
                path=path,
                code="cost-cap-tier",
                problem=f"{cap:g} for a team of tier production",
                valid="requires tier: research (production depends on on-demand nodes)",
                action="remove it, and limit production with borrowing",
            )
        elif all_types_known(stack):
            yield from _affordable(path, cap, team, _on_demand_pools(stack))


def check_budgets(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require a limit in every budget."""
    for index, team in read_teams(stack):
        budget = team.budget
        if budget and budget.usd_per_month is None and budget.gpu_hours_per_month is None:
            yield ConfigIssue(
                path=f"teams[{index}].budget",
                code="budget-without-limit",
                problem="no limit is set",
                valid="requires usdPerMonth, gpuHoursPerMonth or both",
                action="add one, or remove budget",
            )


def _cents(usd: float) -> float:
    """Round up to cents, so that the value in a message is enough."""
    return math.ceil(round(usd * 100, 4)) / 100


def _on_demand_pools(stack: PartialStack) -> list[NodePool]:
    pools = [pool.pool() for _, pool in read_pools(stack)]
    return [
        pool
        for pool in pools
        if pool.workload is Workload.GPU_TRAINING and prices.paid_on_demand(pool)
    ]


def _affordable(
    path: str, cap: float, team: TeamConfig, pools: Sequence[NodePool]
) -> Iterator[ConfigIssue]:
    unknown = [pool.name for pool in pools if prices.per_node(pool) is None]
    if unknown:
        yield ConfigIssue(
            path=path,
            code="price-unknown",
            problem=f"the price of {', '.join(unknown)} is unknown",
            valid=f"requires a price in {catalog.DATA.name} for every on-demand pool",
            action="run python -m infra.cli.catalog refresh, or set borrowing instead",
        )
        return
    own = quotas.guaranteed_usd_per_hour(
        QueueTeam(name=team.name, tier=team.tier, guaranteed=team.guaranteed), pools
    )
    cheapest = min((prices.per_node(pool) or 0.0 for pool in pools), default=0.0)
    if cap < _cents(own):
        yield ConfigIssue(
            path=path,
            code="cost-cap-below-guarantee",
            problem=f"{cap:g} is below the cost of the team's guaranteed on-demand nodes",
            valid=f"must be at least {_cents(own):.2f}",
            action="raise it, or guarantee fewer nodes",
        )
    elif 0 < cap < _cents(cheapest):
        yield ConfigIssue(
            path=path,
            code="cost-cap-below-node",
            problem=f"{cap:g} is below the price of one node",
            valid=f"must be 0 (never on demand), or at least {_cents(cheapest):.2f}",
            action="raise it, or set 0",
        )


CHECKS: Final[tuple[Check, ...]] = (
    check_lending,
    check_borrowing,
    check_cost_cap,
    check_budgets,
)
