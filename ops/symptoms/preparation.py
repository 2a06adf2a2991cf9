"""Runs whose dataset is being prepared or whose model is being fetched, or could not be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from infra.domain import naming
from ops import logs, objects
from ops.runs import exits
from ops.snapshot import Preparation, Snapshot, Verdict
from ops.symptoms import terminal_states
from trainyard import contract


@dataclass(frozen=True, kw_only=True)
class _Words:
    """What is said of one kind of Job."""

    container: str
    """Container of the Job's pods."""
    failed: str
    running: str
    correct: str


_WORDS: Final = {
    naming.DATASET_CONTAINER: _Words(
        container="prepare",
        failed="its dataset could not be prepared",
        running="its dataset, which is being prepared",
        correct="correct the source or `dataset` in the run file, and raise `version`; the next `pulumi up`"
        " prepares it again",
    ),
    naming.WEIGHTS_CONTAINER: _Words(
        container="fetch",
        failed="its model could not be fetched",
        running="its model, which is being fetched",
        correct="correct `model.path` or the team's secret; the next `pulumi up` fetches it again, for a new"
        " `version` of the run if this one has failed",
    ),
}


def failed(snapshot: Snapshot) -> Verdict | None:
    return next(filter(None, (_failed(snapshot, one) for one in snapshot.preparations)), None)


def running(snapshot: Snapshot) -> Verdict | None:
    return next(filter(None, (_running(snapshot, one) for one in snapshot.preparations)), None)


def _failed(snapshot: Snapshot, awaited: Preparation) -> Verdict | None:
    over = objects.condition(awaited.job, "Failed")
    gave_up = next(
        (
            one
            for one in exits.container_exits(snapshot)
            if one.container == awaited.container and one.code == contract.EXIT_BAD_CONFIG
        ),
        None,
    )
    ended = objects.condition_is_true(snapshot.run, "Failed")
    live = snapshot.live_pods
    waiting = any(_is_waiting(pod, awaited) for pod in live)
    blocked = over.get("status") == "True" and (not live or waiting)
    if gave_up is None and not blocked:
        return None
    words = _WORDS[awaited.container]
    tail = _log_tail(awaited) or (terminal_states.log_tail(snapshot, gave_up) if gave_up else [])
    evidence = [*tail[-2:]]
    if awaited.job is not None and over.get("status") == "True":
        evidence.append(f"{objects.reference(awaited.job)}: {over.get('message')}")
    if gave_up:
        evidence.append(gave_up.evidence)
    of_model = awaited.container == naming.WEIGHTS_CONTAINER
    return Verdict(
        symptom="model-failed" if of_model else "dataset-failed",
        headline=f"{'failed' if ended else 'waits'}: {words.failed}",
        evidence=tuple(evidence),
        remedy=(f"kubectl logs -n {snapshot.namespace} job/{awaited.name}", words.correct),
    )


def _running(snapshot: Snapshot, awaited: Preparation) -> Verdict | None:
    job = awaited.job
    if job is None or objects.condition_is_true(job, "Complete"):
        return None
    if not any(_is_waiting(pod, awaited) for pod in snapshot.pods):
        return None
    words = _WORDS[awaited.container]
    pods = [f"{objects.reference(p)}: {_phase(p)}" for p in awaited.pods[:1]]
    of_model = awaited.container == naming.WEIGHTS_CONTAINER
    return Verdict(
        symptom="model-fetching" if of_model else "dataset-preparing",
        headline=f"waits for {words.running}",
        evidence=(
            *_log_tail(awaited)[-1:],
            *(pods or [f"{objects.reference(job)}: has no pod yet"]),
        ),
        remedy=(
            "wait; Kueue returns the run to its queue if this takes longer than a gang may take to start",
            f"kubectl logs -n {snapshot.namespace} job/{objects.name(job)} --follow",
        ),
    )


def _is_waiting(pod: objects.Json, awaited: Preparation) -> bool:
    states = objects.status(pod).get("initContainerStatuses") or []
    return any(
        one["name"] == awaited.container and "running" in (one.get("state") or {}) for one in states
    )


def _phase(pod: objects.Json) -> str:
    message = objects.condition(pod, "PodScheduled").get("message", "")
    return f"{objects.status(pod).get('phase')}{f' ({message})' if message else ''}"


def _log_tail(awaited: Preparation) -> list[str]:
    """Return the end of the log of the newest pod that has one."""
    container = _WORDS[awaited.container].container
    for pod in awaited.pods:
        if tail := logs.log_tail(awaited.logs, objects.name(pod), container):
            return tail
    return []
