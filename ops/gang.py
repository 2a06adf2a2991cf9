"""The pods of a run as a gang: live pods, expected size, readiness."""

from __future__ import annotations

from ops import objects
from ops.objects import Json
from ops.snapshot import Snapshot


def live_pods(snapshot: Snapshot) -> list[Json]:
    """Return the pods that have not ended and are not being deleted."""
    return [
        pod
        for pod in snapshot.pods
        if objects.status(pod).get("phase") in ("Pending", "Running", None)
        and "deletionTimestamp" not in objects.meta(pod)
    ]


def expected_size(snapshot: Snapshot) -> int:
    """Return the requested number of pods, which may exceed the existing ones; 0 if unknown."""
    sets = ((snapshot.workload or {}).get("spec") or {}).get("podSets") or []
    if sets:
        return sum(int(one.get("count", 1)) for one in sets)
    return sum(int(job["spec"].get("parallelism") or 1) for job in snapshot.jobs)


def is_training(snapshot: Snapshot) -> bool:
    """Whether all of its pods exist and are ready."""
    pods = live_pods(snapshot)
    ready = [pod for pod in pods if objects.condition_is_true(pod, "Ready")]
    return bool(pods) and len(ready) == len(pods) and len(pods) >= expected_size(snapshot)
