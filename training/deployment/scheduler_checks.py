"""Runs against the stack's scheduler: what Kueue would do for them and another cannot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infra.config.errors import ConfigIssue, one_of, shown
from infra.domain.platform import Platform
from infra.domain.pools import Network
from infra.queueing.backends import backend
from training.deployment import placement
from training.deployment.gangs import gang_backend
from training.deployment.run_schema import RunFile
from training.spec import RunSpec


def unsuited(file: RunFile, platform: Platform) -> Iterator[ConfigIssue]:
    """Launchers whose gangs the scheduler cannot hold together, and times that it cannot end a run at."""
    if reason := backend(platform.scheduler).unsupported_launchers.get(file.launcher):
        yield ConfigIssue(
            path="launcher",
            problem=f"got {shown(file.launcher)}",
            valid=f"allowed {one_of(platform.launchers)} with scheduler {reason}",
            action="choose one, or another scheduler for the stack",
        )
    if file.max_hours is not None and not gang_backend(platform.scheduler).keeps_max_hours:
        yield ConfigIssue(
            path="maxHours",
            problem=f"got {file.max_hours:g}",
            valid=f"allowed nothing with scheduler {platform.scheduler.value}, for only Kueue ends a run "
            "after its hours",
            action="remove it, and costCapUsd, which needs it",
        )


def zones(run: RunSpec, platform: Platform) -> Iterator[ConfigIssue]:
    """A gang over EFA stays in one zone, which only Kueue sees to."""
    pools = placement.eligible_pools(run, platform)
    apart = sorted({pool.zone for pool in pools if pool.network is Network.EFA})
    if run.nodes > 1 and len(apart) > 1 and not gang_backend(platform.scheduler).keeps_zone:
        yield ConfigIssue(
            path="nodes",
            problem=f"got {run.nodes} on EFA pools in {', '.join(apart)}",
            valid=f"allowed pools of one zone with scheduler {platform.scheduler.value}, which does not "
            "keep a gang in one",
            action="set gpuModel or allowSpot so that one zone is left, or ask for one node",
        )


def together(runs: Sequence[tuple[str, RunSpec]], platform: Platform) -> Iterator[ConfigIssue]:
    """Without queues, all runs of a team fit its quota at once.

    Their pods are made at once, and a quota that ends in the midst of two gangs stops both for ever.
    """
    if backend(platform.scheduler).has_queues:
        return
    held: dict[str, int] = {}
    for where, run in runs:
        quota = platform.teams[run.team].gpu_quota
        before = held.get(run.team, 0)
        held[run.team] = before + run.world_size
        if held[run.team] > quota:
            yield ConfigIssue(
                path=where,
                problem=f"got {run.world_size} GPUs, {held[run.team]} with the runs above",
                valid=f"allowed {quota}, the quota of team {run.team}, for all of its runs at once with "
                f"scheduler {platform.scheduler.value}, which queues none",
                action="take a run off the stack's list, or choose a scheduler with queues",
            )
