"""Runs whose dataset is being prepared, or could not be."""

from __future__ import annotations

from typing import Final

from infra.domain import naming
from ops import gang, logs, objects
from ops.snapshot import Snapshot
from ops.symptoms import terminal_states
from ops.verdict import Verdict
from training import spec

_CONTAINER: Final = "prepare"


def failed(snapshot: Snapshot) -> Verdict | None:
    """The preparation Job has failed, or the run's pods have given up waiting for it."""
    job = snapshot.preparation
    over = objects.condition(job, "Failed")
    gave_up = next(
        (
            one
            for one in terminal_states.container_exits(snapshot)
            if one.container == naming.DATASET_CONTAINER and one.code == spec.EXIT_BAD_CONFIG
        ),
        None,
    )
    ended = objects.condition_is_true(snapshot.run, "Failed")
    live = gang.live_pods(snapshot)
    blocked = over.get("status") == "True" and (not live or any(map(_is_waiting, live)))
    if gave_up is None and not blocked:
        return None
    name = snapshot.preparation_name
    tail = _log_tail(snapshot) or (terminal_states.log_tail(snapshot, gave_up) if gave_up else [])
    evidence = [*tail[-2:]]
    if job is not None and over.get("status") == "True":
        evidence.append(f"{objects.reference(job)}: {over.get('message')}")
    if gave_up:
        evidence.append(gave_up.evidence)
    return Verdict(
        symptom="dataset-failed",
        headline=f"{'failed' if ended else 'waits'}: its dataset could not be prepared",
        evidence=tuple(evidence),
        remedy=(
            f"kubectl logs -n {snapshot.namespace} job/{name}",
            "correct the source or `dataset` in the run file, and raise `version`; the next `pulumi up`"
            " prepares it again",
        ),
    )


def running(snapshot: Snapshot) -> Verdict | None:
    """The run's pods wait in their init container while the Job runs."""
    job = snapshot.preparation
    if job is None or objects.condition_is_true(job, "Complete"):
        return None
    waiting = [pod for pod in snapshot.pods if _is_waiting(pod)]
    if not waiting:
        return None
    pods = [f"{objects.reference(p)}: {_phase(p)}" for p in snapshot.preparation_pods[:1]]
    return Verdict(
        symptom="dataset-preparing",
        headline="waits for its dataset, which is being prepared",
        evidence=(
            *_log_tail(snapshot)[-1:],
            *(pods or [f"{objects.reference(job)}: has no pod yet"]),
        ),
        remedy=(
            "wait; Kueue returns the run to its queue if this takes longer than a gang may take to start",
            f"kubectl logs -n {snapshot.namespace} job/{objects.name(job)} --follow",
        ),
    )


def _is_waiting(pod: objects.Json) -> bool:
    states = objects.status(pod).get("initContainerStatuses") or []
    return any(
        one["name"] == naming.DATASET_CONTAINER and "running" in (one.get("state") or {})
        for one in states
    )


def _phase(pod: objects.Json) -> str:
    message = objects.condition(pod, "PodScheduled").get("message", "")
    return f"{objects.status(pod).get('phase')}{f' ({message})' if message else ''}"


def _log_tail(snapshot: Snapshot) -> list[str]:
    """Return the end of the log of the newest pod that has one."""
    for pod in snapshot.preparation_pods:
        if tail := logs.log_tail(snapshot.preparation_logs, objects.name(pod), _CONTAINER):
            return tail
    return []
