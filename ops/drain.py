"""Drain and resume queues: runs save, stop with exit code 75, and wait suspended.

ClusterQueues are set to HoldAndDrain; Kueue then takes every run back, which suspends its object, and
its pods get SIGTERM and their grace period. Whatever is queued meanwhile waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from infra.domain import naming
from ops import objects
from ops.cluster import Cluster, ClusterError
from ops.collect import CLUSTER_QUEUES, JOBS, PODS, WORKLOADS
from ops.objects import Json
from ops.ready.restore import DRILL
from ops.snapshot import pluralize

POLL_S: Final = 1.0
HOLD_AND_DRAIN: Final = "HoldAndDrain"
OPEN: Final = "None"

Print = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Remaining:
    """What still goes on in the drained queues."""

    runs: tuple[str, ...]
    """Ids of runs that hold quota."""
    pods: tuple[str, ...]
    """`NAMESPACE/POD` of runs' pods that are not over."""

    @property
    def empty(self) -> bool:
        return not self.runs and not self.pods


def queues(cluster: Cluster, team: str | None) -> list[Json]:
    """ClusterQueues of a team, or of all teams. Raises ClusterError when there is none."""
    selector = f"{naming.PART_OF}={naming.PROJECT}" + (f",{naming.TEAM}={team}" if team else "")
    found = cluster.items(CLUSTER_QUEUES, selector=selector)
    if not found:
        known = [objects.label(q, naming.TEAM) for q in cluster.items(CLUSTER_QUEUES)]
        whose = f"team {team!r} has" if team else "there is"
        teams = ", ".join(sorted(filter(None, known))) or "none"
        raise ClusterError(f"{whose} no ClusterQueue; teams with one: {teams}")
    return found


def set_policy(cluster: Cluster, found: Sequence[Json], policy: str) -> list[str]:
    """Give these queues a stopPolicy; returns the names of those that had another one."""
    changed = []
    for queue in found:
        if queue["spec"].get("stopPolicy", OPEN) != policy:
            cluster.patch(CLUSTER_QUEUES, objects.name(queue), {"spec": {"stopPolicy": policy}})
            changed.append(objects.name(queue))
    return changed


def remaining(found: Sequence[Json], workloads: Sequence[Json], pods: Sequence[Json]) -> Remaining:
    """What still runs in these queues; pure.

    Pods outlive their quota: Kueue frees it as soon as the run's object says that nothing is active.
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
        pods=tuple(sorted(f"{objects.meta(p)['namespace']}/{objects.name(p)}" for p in alive)),
    )


def read_remaining(cluster: Cluster, found: Sequence[Json]) -> Remaining:
    """`left`, now."""
    return remaining(found, cluster.items(WORKLOADS), cluster.items(PODS, selector=naming.RUN_ID))


def manual_drill_jobs(cluster: Cluster, team: str | None) -> list[str]:
    """What to type after `kubectl delete` for each restore drill that people started for a team, or for all.

    No owner takes them along, and their pods, also those that have ended, keep the team's volume from
    being deleted.
    """
    teams = {objects.label(queue, naming.TEAM) for queue in queues(cluster, team)}
    return sorted(
        objects.reference(job)
        for job in cluster.items(JOBS, selector=f"{naming.COMPONENT}={DRILL}")
        if not objects.owner(job) and objects.label(job, naming.TEAM) in teams
    )


def drain(cluster: Cluster, team: str | None, timeout_s: float, say: Print) -> Remaining:
    """Stop the queues and wait until nothing runs in them, or `timeout_s` have passed.

    Returns what still runs: nothing, if all went well. Doing it again goes on waiting.
    """
    found = queues(cluster, team)
    for queue in set_policy(cluster, found, HOLD_AND_DRAIN):
        say(f"{queue}: {HOLD_AND_DRAIN}")
    deadline = time.monotonic() + timeout_s
    last_line = ""
    while True:
        now = read_remaining(cluster, found)
        line = f"{pluralize(len(now.runs), 'run')}, {pluralize(len(now.pods), 'pod')} left" + (
            f": {', '.join(now.runs)}" if now.runs else ""
        )
        if line != last_line:
            say(line)
            last_line = line
        if now.empty or time.monotonic() >= deadline:
            return now
        time.sleep(POLL_S)


def resume(cluster: Cluster, team: str | None) -> list[str]:
    """Open the queues again; returns the names of those that were stopped."""
    return set_policy(cluster, queues(cluster, team), OPEN)
