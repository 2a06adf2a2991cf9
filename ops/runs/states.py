"""State, end and cause of a run, derived from its object, its Workload and its pods; nowhere else. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

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


class Cause(StrEnum):
    """Why a run ended."""

    DONE = "done"
    FAILURE = "failure"
    USER = "stopped by run stop"
    TIME_LIMIT = "time limit"
    NEVER_READY = "never ready"
    """Kueue requeued it as often as it may: its pods were not ready in time."""
    DEACTIVATED = "deactivated"
    """By something else that set its Workload inactive."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a run or a gang ended."""

    state: str
    """One of ENDED."""
    cause: Cause
    condition: Json
    """Condition that says so; empty where none is recorded."""
    of: Json
    """Object with that condition: the run's, or its Workload."""

    @property
    def at(self) -> str:
        """RFC 3339; empty if not recorded."""
        return str(self.condition.get("lastTransitionTime") or "")

    @property
    def message(self) -> str:
        return str(self.condition.get("message") or "")


def ending_of(run: Json | None, workload: Json | None = None) -> Ending | None:
    """Return how a run ended; None while it goes on. `run` None: not known, its Workload says it."""
    if run is None:
        return _finished_workload(workload) or _deactivated(workload)
    for kind in (*SUCCESS, "Failed", stopped.CONDITION):
        condition = objects.condition(run, kind)
        if condition.get("status") == "True":
            state, cause = _BY_CONDITION.get(kind, (FINISHED, Cause.DONE))
            return Ending(state=state, cause=cause, condition=condition, of=run)
    return _deactivated(workload)


def has_ended(run: Json) -> bool:
    ending = ending_of(run)
    return ending is not None and ending.state != STOPPED


def _finished_workload(workload: Json | None) -> Ending | None:
    condition = objects.condition(workload, "Finished")
    if workload is None or condition.get("status") != "True":
        return None
    done = condition.get("reason") == "Succeeded"
    state, cause = (FINISHED, Cause.DONE) if done else _BY_CONDITION["Failed"]
    return Ending(state=state, cause=cause, condition=condition, of=workload)


def _deactivated(workload: Json | None) -> Ending | None:
    if workload is None or (workload.get("spec") or {}).get("active", True):
        return None
    evicted = objects.condition(workload, "Evicted")
    text = f"{evicted.get('reason')} {evicted.get('message')}"
    cause = next((c for key, c in _BY_EVICTION.items() if key in text), Cause.DEACTIVATED)
    return Ending(state=STOPPED, cause=cause, condition=evicted, of=workload)


_BY_CONDITION: Final = {
    "Failed": (FAILED, Cause.FAILURE),
    stopped.CONDITION: (STOPPED, Cause.USER),
}
_BY_EVICTION: Final = {
    "MaximumExecutionTimeExceeded": Cause.TIME_LIMIT,
    "RequeuingLimitExceeded": Cause.NEVER_READY,
}


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
    ending = ending_of(run, workload)
    if ending and ending.state != STOPPED:
        return ending.state
    if objects.meta(run).get("deletionTimestamp"):
        return STOPPING
    if ending:
        return STOPPING if live_pods(pods) else STOPPED
    if queued is None:
        queued = bool(objects.label(run, naming.QUEUE_NAME))
    if queued and not objects.condition_is_true(workload, "Admitted"):
        return QUEUED
    ready = ready_pods(pods)
    return RUNNING if ready and ready >= planned else STARTING


def message_of(run: Json, workload: Json | None, state: str) -> str:
    """Return what the cluster says about this state: why it waits or how it ended; often empty."""
    ending = ending_of(run, workload)
    if ending:
        return "" if ending.cause is Cause.DONE else ending.message
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
    over = has_ended(run)
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


def places(workloads: Sequence[Json]) -> dict[str, tuple[int, int]]:
    """Return place and length of the queue by the uid of each pending Workload."""
    queues: dict[tuple[Any, Any], list[Json]] = defaultdict(list)
    for one in workloads:
        queues[objects.meta(one).get("namespace"), (one.get("spec") or {}).get("queueName")].append(
            one
        )
    found = {}
    for mine in queues.values():
        order = queue_order(mine)
        for place, one in enumerate(order, 1):
            found[str(objects.meta(one).get("uid"))] = (place, len(order))
    return found


def _queued_at(workload: Json) -> str:
    """Queue time: of the eviction for a run that could not start, else of its creation."""
    evicted = objects.condition(workload, "Evicted")
    back = evicted.get("reason") in ("PodsReadyTimeout", "AdmissionCheck")
    if evicted.get("status") == "True" and back:
        return str(evicted["lastTransitionTime"])
    return str(objects.meta(workload).get("creationTimestamp"))
