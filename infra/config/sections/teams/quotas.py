"""Teams against pools: names, guarantees, quotas and RDMA."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from infra.config.errors import ConfigIssue, did_you_mean, one_of, shown
from infra.config.partial import Check, PartialStack, duplicates
from infra.config.sections.node_pools import (
    all_types_known,
    gpu_pool,
    pool_names,
    pools_named,
    read_pools,
)
from infra.config.sections.teams.model import read_teams
from infra.domain import catalog
from infra.domain.pools import Capacity, Workload
from infra.domain.tier import TIERS

_BY_POOL: Final = ("guaranteed", "borrowing", "lending")
"""Options of a team with nodes by pool."""


def check_queued_pools(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require GPU pools in guarantees, borrowing and lending."""
    # Of two pools with one name, which is reported, the first counts.
    workloads = {pool.name: pool.workload for _, pool in reversed(read_pools(stack))}
    if not workloads:
        return
    for index, team in read_teams(stack):
        for option in _BY_POOL:
            for name in getattr(team, option):
                path = f"teams[{index}].{option}.{name}"
                if name not in workloads and pools_named(stack):
                    yield ConfigIssue(
                        path=path,
                        code="unknown-name",
                        problem=f"unknown pool {shown(name)}",
                        valid=f"must be one of {one_of(pool_names(stack))}",
                        action=did_you_mean(name, pool_names(stack), "name a pool of nodePools"),
                    )
                elif workloads.get(name) is Workload.CPU:
                    yield ConfigIssue(
                        path=path,
                        code="cpu-pool",
                        problem=f"{shown(name)} is a cpu pool",
                        valid="must be a gpu-training pool (only GPU nodes are queued)",
                        action="remove it",
                    )


def check_guarantees(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require guarantees whose sum fits into the pool."""
    promised: dict[str, int] = {}
    for index, team in read_teams(stack):
        for name, nodes in team.guaranteed.items():
            if (found := gpu_pool(stack, name)) is None:
                continue
            place, pool = found
            before = promised.get(name, 0)
            promised[name] = before + nodes
            if promised[name] > pool.max:
                yield ConfigIssue(
                    path=f"teams[{index}].guaranteed.{name}",
                    code="guarantees-above-pool",
                    problem=f"{nodes} makes {promised[name]} with the teams above",
                    valid=f"must be at most {pool.max - before}: the pool has at most {pool.max} "
                    "nodes",
                    action=f"lower it, or raise nodePools[{place}].max",
                )


def check_gpu_quotas(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require GPU quotas within the GPUs of all pools."""
    if not all_types_known(stack):
        return
    known = catalog.load().types
    total = sum(p.max * min(known[t].gpus for t in p.instance_types) for _, p in read_pools(stack))
    for index, team in read_teams(stack):
        if team.quota.gpus > total:
            yield ConfigIssue(
                path=f"teams[{index}].quota.gpus",
                code="quota-above-pools",
                problem=f"{team.quota.gpus} exceeds the GPUs of all pools",
                valid=f"must be at most {total}",
                action="lower it, or enlarge a pool",
            )


def check_production_guarantees(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Reject guarantees of production teams that are all on spot."""
    capacity = {pool.name: pool.capacity for _, pool in read_pools(stack)}
    for index, team in read_teams(stack):
        promised = [capacity.get(name) for name, nodes in team.guaranteed.items() if nodes]
        if TIERS[team.tier].needs_on_demand_guarantee and set(promised) == {Capacity.SPOT}:
            yield ConfigIssue(
                path=f"teams[{index}].guaranteed",
                code="production-on-spot",
                problem="all guaranteed pools are spot",
                valid="tier: production requires nodes of an on-demand pool",
                action="guarantee on-demand nodes, too, or set tier: research",
            )


def check_unique_team_names(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require unique names of teams."""
    return duplicates("teams", [(index, team.name) for index, team in read_teams(stack)])


CHECKS: Final[tuple[Check, ...]] = (
    check_unique_team_names,
    check_queued_pools,
    check_guarantees,
    check_production_guarantees,
    check_gpu_quotas,
)
