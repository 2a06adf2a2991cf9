"""Drain and resume queues: runs save, exit with code 75 and wait suspended.

ClusterQueues are set to HoldAndDrain: Kueue evicts every run, which suspends its object; its pods get
SIGTERM and their grace period. Runs that are queued meanwhile wait.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console

from infra.domain import naming
from ops import objects
from ops.cluster import Cluster, ClusterError
from ops.collect import CLUSTER_QUEUES, JOBS, PODS, WORKLOADS
from ops.commands import Group, add_timeout, printer
from ops.objects import Json
from ops.ready.probes import DRILL
from ops.snapshot import pluralize

POLL_S: Final = 1.0
HOLD_AND_DRAIN: Final = "HoldAndDrain"
OPEN: Final = "None"

Print = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Remaining:
    """What still runs in the drained queues."""

    runs: tuple[str, ...]
    """Ids of runs that hold quota."""
    pods: tuple[str, ...]
    """`NAMESPACE/POD` of the runs' pods that have not ended."""

    @property
    def empty(self) -> bool:
        return not self.runs and not self.pods


def queues(cluster: Cluster, team: str | None) -> list[Json]:
    """Return the ClusterQueues of a team, or of all teams. Raises ClusterError if there is none."""
    selector = f"{naming.PART_OF}={naming.PROJECT}" + (f",{naming.TEAM}={team}" if team else "")
    found = cluster.items(CLUSTER_QUEUES, selector=selector)
    if not found:
        known = [objects.label(q, naming.TEAM) for q in cluster.items(CLUSTER_QUEUES)]
        teams = ", ".join(sorted(filter(None, known))) or "none"
        problem = f"--team: got {team!r}" if team else "clusterqueues: not found"
        raise ClusterError(f"{problem}; teams with a ClusterQueue: {teams}")
    return found


def set_policy(cluster: Cluster, found: Sequence[Json], policy: str) -> list[str]:
    """Set the stopPolicy of these queues; return the names of those that had another one."""
    changed = []
    for queue in found:
        if queue["spec"].get("stopPolicy", OPEN) != policy:
            cluster.patch(CLUSTER_QUEUES, objects.name(queue), {"spec": {"stopPolicy": policy}})
            changed.append(objects.name(queue))
    return changed


def remaining(found: Sequence[Json], workloads: Sequence[Json], pods: Sequence[Json]) -> Remaining:
    """Return what still runs in these queues. Pure.

    Pods outlive their quota: Kueue frees it as soon as the run's object reports no active pods.
    """
    names = {objects.name(queue) for queue in found}
    teams = {objects.label(queue, naming.TEAM) for queue in found}
    holding = [
        w
        for w in workloads
        if (objects.status(w).get("admission") or {}).get("clusterQueue") in names
        and not objects.condition_is_true(w, "Finished")
    ]
    alive = [
        pod
        for pod in pods
        if objects.label(pod, naming.TEAM) in teams
        and objects.status(pod).get("phase") in ("Pending", "Running")
        and objects.label(pod, naming.LAUNCHER)
    ]
    return Remaining(
        runs=tuple(sorted({objects.run_id_of(w) for w in holding})),
        pods=tuple(sorted(objects.full_name(p) for p in alive)),
    )


def read_remaining(cluster: Cluster, found: Sequence[Json]) -> Remaining:
    return remaining(found, cluster.items(WORKLOADS), cluster.items(PODS, selector=naming.RUN_ID))


def manual_drill_jobs(cluster: Cluster, team: str | None) -> list[str]:
    """Return `kubectl delete` arguments for each manually started restore drill of a team, or of all.

    These Jobs have no owner that deletes them, and their pods, even completed ones, block the deletion
    of the team's volume.
    """
    teams = {objects.label(queue, naming.TEAM) for queue in queues(cluster, team)}
    return sorted(
        objects.reference(job)
        for job in cluster.items(JOBS, selector=f"{naming.COMPONENT}={DRILL}")
        if not objects.owner(job) and objects.label(job, naming.TEAM) in teams
    )


def drain(cluster: Cluster, team: str | None, timeout_s: float, report: Print) -> Remaining:
    """Stop the queues and wait until nothing runs in them, for at most `timeout_s` seconds.

    Return what still runs: empty on success. Idempotent: a repeated call continues to wait.
    """
    found = queues(cluster, team)
    for queue in set_policy(cluster, found, HOLD_AND_DRAIN):
        report(f"{queue}: {HOLD_AND_DRAIN}")
    deadline = time.monotonic() + timeout_s
    last_line = ""
    while True:
        now = read_remaining(cluster, found)
        line = f"{pluralize(len(now.runs), 'run')}, {pluralize(len(now.pods), 'pod')} left" + (
            f": {', '.join(now.runs)}" if now.runs else ""
        )
        if line != last_line:
            report(line)
            last_line = line
        if now.empty or time.monotonic() >= deadline:
            return now
        time.sleep(POLL_S)


def resume(cluster: Cluster, team: str | None) -> list[str]:
    return set_policy(cluster, queues(cluster, team), OPEN)


DRAIN_TIMEOUT_S: Final = 600.0


def add(commands: Group) -> None:
    stop = commands.add(
        "drain",
        _drain,
        "stop the queues: running runs save, exit and requeue",
        ["stack drain --team research", "stack drain --timeout 1800"],
    )
    add_timeout(stop, DRAIN_TIMEOUT_S, "time limit until nothing runs")
    commands.add("resume", _resume, "reopen the queues", ["stack resume --team research"])


def _drain(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    show = printer(console)
    left = drain(cluster, args.team, args.timeout, show)
    team = f" --team {args.team}" if args.team else ""
    if not left.empty:
        for pod in left.pods:
            show(f"  still running: {pod}")
        show(
            f"Not drained after {args.timeout:g} s; run trainyard stack drain{team} to continue waiting."
        )
        return 1
    show("Drained: nothing runs, queued runs wait.")
    for job in manual_drill_jobs(cluster, args.team):
        show(f"Before pulumi destroy: kubectl delete {job} (its pod holds the team's volume).")
    show(
        f"Next: trainyard stack resume{team} reopens the queues; pulumi destroy deletes the stack."
    )
    return 0


def _resume(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    opened = resume(cluster, args.team)
    printer(console)(f"Open: {', '.join(opened) if opened else 'no queue was stopped'}")
    return 0
