"""Whether a run can consist of replica groups: on this platform, of this kind, and so many of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from infra.domain.platform import Platform
from infra.domain.pools import NodePool
from infra.sections.errors import ConfigIssue, one_of
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
        yield ConfigIssue(
            path="groups.onDemand",
            code="conflict",
            problem="divides the groups between on-demand and spot nodes, and allowSpot is false",
            valid="must be absent with allowSpot: false",
            action="remove one of them",
        )
    kinds = sorted(name for name, one in LAUNCHERS.items() if one.support.groups)
    if file.job_kind not in kinds:
        yield ConfigIssue(
            path="groups",
            code="kind-without-groups",
            problem=f"jobKind {file.job_kind} does not restart each group by itself, by the cause of its end",
            valid=f"requires jobKind {one_of(kinds)}",
            action=f"set jobKind: {kinds[0]}, or remove groups",
        )
    if file.program is not None and file.program.launcher not in _LAUNCHERS:
        yield ConfigIssue(
            path="program.launcher",
            code="launcher-without-groups",
            problem=f"{file.program.launcher} does not start ranks that use trainyard.elastic",
            valid=f"must be {one_of(_LAUNCHERS)} with groups",
            action="change it, or remove groups",
        )
    if not gang_backend(platform.scheduler).admits_groups:
        yield ConfigIssue(
            path="groups",
            code="kueue-only",
            problem=f"scheduler {platform.scheduler.value} does not admit the groups of a run one by one",
            valid="requires Kueue",
            action="remove it",
        )
    elif not platform.releases_groups:
        yield ConfigIssue(
            path="groups",
            code="section-required",
            problem="nothing on the stack lets groups go that still wait when their run has ended",
            valid="requires the section elasticRuns in the stack file",
            action="add it, or remove groups",
        )


def _numbers(groups: Groups) -> Iterator[ConfigIssue]:
    if groups.min > groups.max:
        yield ConfigIssue(
            path="groups.min",
            code="out-of-range",
            problem=f"{groups.min} is more than groups.max",
            valid=f"must be at most {groups.max}",
            action="lower it, or raise groups.max",
        )
    if groups.count > GROUPS_MAX:
        yield ConfigIssue(
            path="groups.spares",
            code="out-of-range",
            problem=f"{groups.count} groups with spares",
            valid=f"must be at most {GROUPS_MAX} with groups.max",
            action="lower one of them",
        )
    if (groups.on_demand or 0) > groups.count:
        yield ConfigIssue(
            path="groups.onDemand",
            code="out-of-range",
            problem=f"{groups.on_demand} is more than the run has groups",
            valid=f"must be at most {groups.count}, which is max + spares",
            action="lower it",
        )


def check_capacity(run: RunSpec, platform: Platform) -> Iterator[ConfigIssue]:
    """Check that all groups can run at once while other teams are idle, on GPUs of one model."""
    if run.groups is None:
        return
    yield from _models(run, placement.eligible_pools(run, platform))
    for capacity, gangs in _by_capacity(run).items():
        pools = placement.eligible_pools(gangs[0], platform)
        if not pools:
            yield ConfigIssue(
                path="groups.onDemand",
                code="no-such-pool",
                problem=f"{len(gangs)} groups need {capacity} nodes, and no pool of the team has such for them",
                valid="must be absent, or leave no group without a pool",
                action="remove it, set allowSpot: true, or add a pool",
            )
            continue
        most = sum(_most_gangs(run, pool, platform) for pool in pools)
        if most < len(gangs):
            yield _too_many(run, len(gangs), most, pools)


def _by_capacity(run: RunSpec) -> dict[str, list[RunSpec]]:
    """Return the groups by the capacity that they may have."""
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
    return ConfigIssue(
        path="groups.max" if most else "nodes",
        code="share-too-small",
        problem=f"groups x nodes = {wanted} x {run.nodes} is more than team {run.team} can have at once "
        f"({names})",
        valid=f"must be at most {most} groups in these pools, with spares"
        if most
        else "must fit one of these pools and the team's share of it",
        action="request fewer, or raise the pool's max or the team's guaranteed, borrowing or "
        "onDemandUsdPerHour",
    )


def _models(run: RunSpec, pools: Sequence[NodePool]) -> Iterator[ConfigIssue]:
    """Groups compute the same bits on equal GPUs only."""
    models = sorted({model for pool in pools for model in pool.gpu_models})
    if len(models) > 1 and not run.gpu_model:
        yield ConfigIssue(
            path="gpuModel",
            code="mixed-gpus",
            problem="missing, and groups on different GPUs would compute different losses",
            valid=f"must be one of {one_of(models)} for a run with groups",
            action="set it",
        )
