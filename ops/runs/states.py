"""State of a run from its object, its Workload and its pods. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from infra.domain import naming
from ops import objects, stopped
from ops.objects import Json

QUEUED: Final = "queued"
"""Waits in its queue for quota."""
STARTING: Final = "starting"
"""Admitted; not all of its pods are ready."""
RUNNING: Final = "running"
"""All of its pods are ready."""
STOPPING: Final = "stopping"
"""It is being stopped or deleted while its pods save."""
STOPPED: Final = "stopped"
"""By `run stop`; or Kueue does not queue it any more: at its time limit, or sent back too often."""
FINISHED: Final = "finished"
FAILED: Final = "failed"

STATES: Final = (QUEUED, STARTING, RUNNING, STOPPING, STOPPED, FINISHED, FAILED)
ENDED: Final = frozenset({STOPPED, FINISHED, FAILED})
"""States in which it holds nothing, and that it leaves by nothing that the platform does."""

SUCCESS: Final = ("Completed", "Complete", "Succeeded")
"""Success conditions of JobSet, of Job and TrainJob, of Training Operator and MPI Operator."""
RESTART_ATTEMPT: Final = "jobset.sigs.k8s.io/restart-attempt"
"""Label that JobSet puts on pods: restarts of the gang before this one."""


def state_of(
    run: Json,
    workload: Json | None,
    pods: Sequence[Json],
    planned: int,
    *,
    queued: bool | None = None,
) -> str:
    """Return the state of a run. `planned`: its number of pods; 0: not known.

    `queued`: whether a queue holds it back; None: as its label says.
    """
    if has_succeeded(run):
        return FINISHED
    if objects.condition_is_true(run, "Failed"):
        return FAILED
    if objects.meta(run).get("deletionTimestamp"):
        return STOPPING
    if stopped.is_stopped(run):
        return STOPPING if live_pods(pods) else STOPPED
    if workload is not None and not (workload.get("spec") or {}).get("active", True):
        return STOPPING if live_pods(pods) else STOPPED
    if queued is None:
        queued = bool(objects.label(run, naming.QUEUE_NAME))
    if queued and not objects.condition_is_true(workload, "Admitted"):
        return QUEUED
    ready = ready_pods(pods)
    return RUNNING if ready and ready >= planned else STARTING


def has_succeeded(run: Json) -> bool:
    return any(objects.condition_is_true(run, kind) for kind in SUCCESS)


def ended_at(run: Json, workload: Json | None) -> str:
    """Return when it finished, failed or was stopped, RFC 3339; empty if it did not."""
    for kind in (*SUCCESS, "Failed", stopped.CONDITION):
        condition = objects.condition(run, kind)
        if condition.get("status") == "True":
            return str(condition.get("lastTransitionTime") or "")
    if workload is not None and not (workload.get("spec") or {}).get("active", True):
        return str(objects.condition(workload, "Evicted").get("lastTransitionTime") or "")
    return ""


def message_of(run: Json, workload: Json | None, state: str) -> str:
    """Return what the cluster says about this state: why it waits or how it ended; often empty."""
    if state == FAILED:
        return str(objects.condition(run, "Failed").get("message") or "")
    if stopped.is_stopped(run):
        return str(objects.condition(run, stopped.CONDITION).get("message") or "")
    if state == STOPPED:
        return str(objects.condition(workload, "Evicted").get("message") or "")
    if state == QUEUED:
        return str(objects.condition(workload, "QuotaReserved").get("message") or "")
    return ""


def live_pods(pods: Sequence[Json]) -> list[Json]:
    """Return the pods that have not ended and are not being deleted."""
    return [
        pod
        for pod in pods
        if objects.status(pod).get("phase") in ("Pending", "Running", None)
        and "deletionTimestamp" not in objects.meta(pod)
    ]


def ready_pods(pods: Sequence[Json]) -> int:
    """Return how many live pods are ready."""
    return sum(objects.condition_is_true(pod, "Ready") for pod in live_pods(pods))


def planned_pods(workload: Json | None) -> int:
    """Return how many pods the run has when it runs; 0 if that is not known."""
    sets = ((workload or {}).get("spec") or {}).get("podSets") or []
    return sum(int(one.get("count", 1)) for one in sets)


def pools(workload: Json | None) -> tuple[str, ...]:
    """Return the pools that it is admitted to; none while it is not."""
    admission = objects.status(workload).get("admission") or {}
    sets = admission.get("podSetAssignments") or []
    return tuple(sorted({str(f) for one in sets for f in (one.get("flavors") or {}).values()}))


def attempt_of(run: Json, workload: Json | None) -> int:
    """Return the number of the current or last start of a gang's pods, from 1; 0 before its first admission.

    Evictions and restarts in place begin another one. The ranks count on their own: also starts within a pod, and
    none that ends before they have joined.
    """
    restarts = int(objects.status(run).get("restarts") or 0)
    started = eviction_count(workload) + restarts
    queued = bool(objects.label(run, naming.QUEUE_NAME))
    over = has_succeeded(run) or objects.condition_is_true(run, "Failed")
    now = not queued or objects.condition_is_true(workload, "Admitted")
    return started + 1 if now or (over and workload is None) else started


def attempt_of_pod(pod: Json, workload: Json | None) -> int:
    """Return the number of the start that a pod belongs to, as `attempt_of` counts. `workload`: of its gang.

    A pod that is older than the end of the last admission is of the one before, and may outlast it.
    """
    evicted = str(objects.condition(workload, "Evicted").get("lastTransitionTime") or "")
    earlier = str(objects.meta(pod).get("creationTimestamp")) < evicted
    restarts = objects.label(pod, RESTART_ATTEMPT)
    number = eviction_count(workload) + (int(restarts) if restarts.isdigit() else 0)
    return max(1, number if earlier else number + 1)


def eviction_count(workload: Json | None) -> int:
    """Return how often Kueue has stopped the run after its admission."""
    stats = objects.status(workload).get("schedulingStats") or {}
    return sum(int(one.get("count", 1)) for one in stats.get("evictions") or [])


def queue_order(workloads: Sequence[Json]) -> list[Json]:
    """Return pending Workloads of one queue in the order in which Kueue tries them."""
    waiting = [
        one
        for one in workloads
        if (one.get("spec") or {}).get("active", True)
        and not objects.condition_is_true(one, "QuotaReserved")
        and not objects.condition_is_true(one, "Finished")
    ]
    return sorted(waiting, key=lambda w: (-int(w["spec"].get("priority") or 0), _queued_at(w)))


def _queued_at(workload: Json) -> str:
    """Queue time: of the eviction for a run that could not start, else of its creation."""
    evicted = objects.condition(workload, "Evicted")
    back = evicted.get("reason") in ("PodsReadyTimeout", "AdmissionCheck")
    if evicted.get("status") == "True" and back:
        return str(evicted["lastTransitionTime"])
    return str(objects.meta(workload).get("creationTimestamp"))
