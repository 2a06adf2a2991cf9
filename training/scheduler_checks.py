"""Checks of runs against what the stack's scheduler supports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infra.domain.platform import Platform
from infra.domain.pools import Network
from infra.sections.errors import ConfigIssue, issue, one_of, shown
from training import placement
from training.gangs import gang_backend
from training.run_schema import RunFile
from training.spec import RunSpec


def check_scheduler_support(file: RunFile, platform: Platform) -> Iterator[ConfigIssue]:
    """Reject kinds of Kubernetes object and time limits that the scheduler does not support."""
    scheduler = platform.scheduler.value
    if reason := platform.scheduler.unsupported_launchers.get(file.job_kind):
        yield issue(
            "unsupported-kind",
            "jobKind",
            f"{shown(file.job_kind)} does not work with scheduler {scheduler}: {reason}",
            f"must be one of {one_of(platform.launchers)}",
            "choose one, or another scheduler for the stack",
        )
    if file.max_hours is not None and not gang_backend(platform.scheduler).keeps_max_hours:
        yield issue(
            "kueue-only",
            "maxHours",
            "only Kueue ends runs at their time limit",
            f"must be absent with scheduler {scheduler}",
            "remove it, and costCapUsd, which needs it",
        )


def check_zones(run: RunSpec, platform: Platform) -> Iterator[ConfigIssue]:
    """Reject gangs over EFA with pools in several zones, unless the scheduler keeps them in one."""
    pools = placement.eligible_pools(run, platform)
    apart = sorted({pool.zone for pool in pools if pool.network is Network.EFA})
    if run.nodes > 1 and len(apart) > 1 and not gang_backend(platform.scheduler).keeps_zone:
        yield issue(
            "several-zones",
            "nodes",
            f"the eligible EFA pools are in {', '.join(apart)}, and scheduler "
            f"{platform.scheduler.value} does not keep a gang in one zone",
            "must be pools of one zone",
            "set gpuModel or allowSpot to exclude the others, or set nodes: 1",
        )


def check_quota_of_all(
    runs: Sequence[tuple[str, RunSpec]], platform: Platform
) -> Iterator[ConfigIssue]:
    """Reject runs of a team that exceed its quota together, where no queue holds them back.

    Their pods are created at once, and a quota that is used up halfway through two gangs blocks both forever.
    """
    if platform.scheduler.has_queues:
        return
    total: dict[str, int] = {}
    for where, run in runs:
        quota = platform.teams[run.team].gpu_quota
        total[run.team] = total.get(run.team, 0) + run.world_size
        if total[run.team] > quota:
            yield issue(
                "quota-exceeded",
                where,
                f"needs {run.world_size} GPUs, {total[run.team]} with the runs above, and scheduler "
                f"{platform.scheduler.value} has no queues",
                f"all runs of team {run.team} must fit its quota of {quota} GPUs together",
                "remove a run from the stack's list, or choose a scheduler with queues",
            )
