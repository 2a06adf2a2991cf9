"""Teams against pools: guarantees and quotas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from infra.config.checks.partial import PartialStack
from infra.config.errors import ConfigIssue, did_you_mean, one_of
from infra.domain import catalog
from infra.domain.pools import Capacity, Workload
from infra.domain.tier import TIERS

_BY_POOL: Final = ("guaranteed", "borrowing", "lending")
"""Options of a team that give nodes by pool."""


def check_queued_pools(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require GPU pools in guarantees, borrowing and lending."""
    # Of two pools with one name, which is a mistake of its own, the first counts.
    workloads = {pool.name: pool.workload for _, pool in reversed(parts.pools)}
    if not workloads:
        return
    for index, team in parts.teams:
        for option in _BY_POOL:
            for name in getattr(team, option):
                path = f"teams[{index}].{option}.{name}"
                if name not in workloads:
                    yield ConfigIssue(
                        path=path,
                        problem="got an unknown pool",
                        valid=f"allowed {one_of(parts.pool_names)}",
                        action=did_you_mean(name, parts.pool_names, "name a pool of nodePools"),
                    )
                elif workloads[name] is Workload.CPU:
                    yield ConfigIssue(
                        path=path,
                        problem="got a cpu pool",
                        valid="allowed gpu-training pools, for only GPU nodes are queued for",
                        action="remove it",
                    )


def check_guarantees(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require guarantees whose sum fits into the pool."""
    promised: dict[str, int] = {}
    for index, team in parts.teams:
        for name, nodes in team.guaranteed.items():
            if (found := parts.gpu_pool(name)) is None:
                continue
            place, pool = found
            before = promised.get(name, 0)
            promised[name] = before + nodes
            if promised[name] > pool.max:
                yield ConfigIssue(
                    path=f"teams[{index}].guaranteed.{name}",
                    problem=f"got {nodes}, {promised[name]} with the teams above",
                    valid=f"allowed at most {pool.max - before}, for the pool has at most {pool.max}",
                    action=f"lower it, or raise nodePools[{place}].max",
                )


def check_gpu_quotas(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require GPU quotas within the GPUs of all pools."""
    if not parts.all_known:
        return
    known = catalog.load().types
    total = sum(p.max * min(known[t].gpus for t in p.instance_types) for _, p in parts.pools)
    for index, team in parts.teams:
        if team.quota.gpus > total:
            yield ConfigIssue(
                path=f"teams[{index}].quota.gpus",
                problem=f"got {team.quota.gpus}",
                valid=f"allowed at most {total}, all GPUs of all pools",
                action="lower it, or enlarge a pool",
            )


def check_production_guarantees(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Reject guarantees of production teams that are all on spot."""
    capacity = {pool.name: pool.capacity for _, pool in parts.pools}
    for index, team in parts.teams:
        promised = [capacity.get(name) for name, nodes in team.guaranteed.items() if nodes]
        if TIERS[team.tier].needs_on_demand_guarantee and set(promised) == {Capacity.SPOT}:
            yield ConfigIssue(
                path=f"teams[{index}].guaranteed",
                problem="got spot pools only",
                valid="allowed nodes of an on-demand pool for a team of tier production",
                action="guarantee it on-demand nodes, too, or set tier: research",
            )
