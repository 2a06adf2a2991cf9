"""The pods of a run as a gang: live pods, expected size, readiness."""

from __future__ import annotations

import dataclasses

from ops import groups, objects
from ops.objects import Json
from ops.runs import states
from ops.snapshot import Snapshot


def live_pods(snapshot: Snapshot) -> list[Json]:
    """Return the pods that have not ended and are not being deleted."""
    return states.live_pods(snapshot.pods)


def expected_size(snapshot: Snapshot) -> int:
    """Return the requested number of pods, which may exceed the existing ones; 0 if unknown."""
    planned = states.planned_pods(snapshot.workload)
    return planned or sum(int(job["spec"].get("parallelism") or 1) for job in snapshot.jobs)


def is_training(snapshot: Snapshot) -> bool:
    """Whether all of its pods exist and are ready."""
    pods = live_pods(snapshot)
    ready = [pod for pod in pods if objects.condition_is_true(pod, "Ready")]
    return bool(pods) and len(ready) == len(pods) and len(pods) >= expected_size(snapshot)


def that_trains(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot without groups that do not take part; as it is if the run has none."""
    if not groups.has_groups(snapshot.run):
        return snapshot
    there = [part for part in snapshot.parts if is_training(part)]
    return dataclasses.replace(
        snapshot,
        pods=[pod for part in there for pod in part.pods],
        jobs=[job for part in there for job in part.jobs],
    )
