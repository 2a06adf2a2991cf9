"""A run's pods as one gang: those that are alive, how many there must be, whether all are ready."""

from __future__ import annotations

from ops import objects
from ops.objects import Json
from ops.snapshot import Snapshot


def live_pods(snapshot: Snapshot) -> list[Json]:
    """Pods that are not over and not being taken away."""
    return [
        pod
        for pod in snapshot.pods
        if objects.status(pod).get("phase") in ("Pending", "Running", None)
        and "deletionTimestamp" not in objects.meta(pod)
    ]


def expected_size(snapshot: Snapshot) -> int:
    """Its size as it was asked for, which may be more than there are pods yet; 0 where nobody says."""
    sets = ((snapshot.workload or {}).get("spec") or {}).get("podSets") or []
    if sets:
        return sum(int(one.get("count", 1)) for one in sets)
    return sum(int(job["spec"].get("parallelism") or 1) for job in snapshot.jobs)


def is_training(snapshot: Snapshot) -> bool:
    """Whether all of its pods are there and ready."""
    pods = live_pods(snapshot)
    ready = [pod for pod in pods if objects.condition_is_true(pod, "Ready")]
    return bool(pods) and len(ready) == len(pods) and len(pods) >= expected_size(snapshot)
