"""Whether a run can consist of replica groups: on this platform, of this kind, and so many of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from infra.domain.platform import Platform
from infra.domain.pools import NodePool
from infra.sections.errors import ConfigIssue, issue, one_of
from training import placement
from training.gangs import gang_backend
from training.launchers import LAUNCHERS
from training.run_schema import RunFile
from training.spec import GROUPS_MAX, SPOT, Groups, RunSpec

_LAUNCHERS: Final = ("torchrun", "accelerate", "python")
"""Of programs whose ranks meet by torch's variables alone."""


def check_support(file: RunFile, platform: Platform) -> Iterator[ConfigIssue]:
    """Check that kind, program, scheduler and stack know groups, and that their numbers fit each other."""
    if file.groups is None:
        return
    yield from _numbers(file.groups)
    if file.groups.on_demand is not None and file.allow_spot is False:
        yield issue(
            "conflict",
            "groups.onDemand",
            "divides the groups between on-demand and spot nodes, and allowSpot is false",
            "must be absent with allowSpot: false",
            "remove one of them",
        )
    kinds = sorted(name for name, one in LAUNCHERS.items() if one.support.groups)
    if file.job_kind not in kinds:
        yield issue(
            "kind-without-groups",
            "groups",
            f"jobKind {file.job_kind} does not restart each group by itself, by the cause of its end",
            f"requires jobKind {one_of(kinds)}",
            f"set jobKind: {kinds[0]}, or remove groups",
        )
    if file.program is not None and file.program.launcher not in _LAUNCHERS:
        yield issue(
            "launcher-without-groups",
            "program.launcher",
            f"{file.program.launcher} does not start ranks that use trainyard.elastic",
            f"must be {one_of(_LAUNCHERS)} with groups",
            "change it, or remove groups",
        )
    if not gang_backend(platform.scheduler).admits_groups:
        yield issue(
            "kueue-only",
            "groups",
            f"scheduler {platform.scheduler.value} does not admit the groups of a run one by one",
            "requires Kueue",
            "remove it",
        )
    elif not platform.releases_groups:
        yield issue(
            "section-required",
            "groups",
            "nothing on the stack lets groups go that still wait when their run has ended",
            "requires the section elasticRuns in the stack file",
            "add it, or remove groups",
        )


def _numbers(groups: Groups) -> Iterator[ConfigIssue]:
    if groups.min > groups.max:
        yield issue(
            "out-of-range",
            "groups.min",
            f"{groups.min} is more than groups.max",
            f"must be at most {groups.max}",
            "lower it, or raise groups.max",
        )
    if groups.count > GROUPS_MAX:
        yield issue(
            "out-of-range",
            "groups.spares",
            f"{groups.count} groups with spares",
            f"must be at most {GROUPS_MAX} with groups.max",
            "lower one of them",
        )
    if (groups.on_demand or 0) > groups.count:
        yield issue(
            "out-of-range",
            "groups.onDemand",
            f"{groups.on_demand} is more than the run has groups",
            f"must be at most {groups.count}, which is max + spares",
            "lower it",
        )


def check_capacity(run: RunSpec, platform: Platform) -> Iterator[ConfigIssue]:
    """Check that all groups can run at once while other teams are idle, on GPUs of one model."""
    if run.groups is None:
        return
    yield from _models(run, placement.eligible_pools(run, platform))
    for capacity, gangs in _by_capacity(run).items():
        pools = placement.eligible_pools(gangs[0], platform)
        if not pools:
            yield issue(
                "no-such-pool",
                "groups.onDemand",
                f"{len(gangs)} groups need {capacity} nodes, and no pool of the team has such for them",
                "must be absent, or leave no group without a pool",
                "remove it, set allowSpot: true, or add a pool",
            )
            continue
        most = sum(_most_gangs(run, pool, platform) for pool in pools)
        if most < len(gangs):
            yield _too_many(run, len(gangs), most, pools)


def _by_capacity(run: RunSpec) -> dict[str, list[RunSpec]]:
    found: dict[str, list[RunSpec]] = {}
    for gang in run.gangs():
        found.setdefault(" or ".join(gang.gang_capacity_types) or SPOT, []).append(gang)
    return found


def _most_gangs(run: RunSpec, pool: NodePool, platform: Platform) -> int:
    """Return how many groups a pool can hold for the team; those of a part of a node share it."""
    nodes = min(pool.max, platform.teams[run.team].most_nodes.get(pool.name, pool.max))
    return nodes // run.nodes * (pool.gpus_per_node // run.processes_per_node)


def _too_many(run: RunSpec, wanted: int, most: int, pools: Sequence[NodePool]) -> ConfigIssue:
    assert run.groups
    names = ", ".join(pool.name for pool in pools)
    return issue(
        "share-too-small",
        "groups.max" if most else "nodes",
        f"groups x nodes = {wanted} x {run.nodes} is more than team {run.team} can have at once "
        f"({names})",
        f"must be at most {most} groups in these pools, with spares"
        if most
        else "must fit one of these pools and the team's share of it",
        "request fewer, or raise the pool's max or the team's guaranteed, borrowing or "
        "onDemandUsdPerHour",
    )


def _models(run: RunSpec, pools: Sequence[NodePool]) -> Iterator[ConfigIssue]:
    """Groups compute the same bits on equal GPUs only."""
    models = sorted({model for pool in pools for model in pool.gpu_models})
    if len(models) > 1 and not run.gpu_model:
        yield issue(
            "mixed-gpus",
            "gpuModel",
            "missing, and groups on different GPUs would compute different losses",
            f"must be one of {one_of(models)} for a run with groups",
            "set it",
        )
