"""Runs that have ended or are ending: finished, failed, stopped, being deleted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ops import gang, logs, objects
from ops import stopped as stopped_runs
from ops.objects import Json
from ops.runs import states
from ops.snapshot import Snapshot, pluralize
from ops.verdict import Symptom, Verdict
from trainyard import contract
from trainyard.restart_budget import USED_UP

_EXIT_CODE: Final = re.compile(r"exit code (\d+)")
_MAX_TIME: Final = "MaximumExecutionTimeExceeded"
_NEVER_READY: Final = "RequeuingLimitExceeded"
OUT_OF_MEMORY: Final = "OOMKilled"


@dataclass(frozen=True, kw_only=True)
class Exit:
    """How a container ended. `pod` is empty where only the Job's condition is left."""

    pod: str
    container: str
    code: int
    reason: str
    finished: str = ""
    """RFC 3339 time stamp; empty if not recorded."""

    @property
    def evidence(self) -> str:
        """`OBJECT: observation`."""
        reason = f" ({self.reason})" if self.reason else ""
        return f"pod/{self.pod}: container {self.container} exited with {self.code}{reason}"


def container_exits(snapshot: Snapshot) -> Iterator[Exit]:
    """Yield the non-zero exits of the run's containers that are still recorded."""
    for pod in snapshot.pods:
        status = objects.status(pod)
        for one in [*status.get("containerStatuses", []), *status.get("initContainerStatuses", [])]:
            for state in (one.get("state") or {}, one.get("lastState") or {}):
                ended = state.get("terminated") or {}
                if ended.get("exitCode"):
                    yield Exit(
                        pod=objects.name(pod),
                        container=one["name"],
                        code=int(ended["exitCode"]),
                        reason=str(ended.get("reason", "")),
                        finished=str(ended.get("finishedAt", "")),
                    )
    for job in snapshot.jobs:
        message = str(objects.condition(job, "Failed").get("message", ""))
        if found := _EXIT_CODE.search(message):
            yield Exit(pod="", container="", code=int(found[1]), reason="")


def first_exit(snapshot: Snapshot) -> Exit | None:
    """Return the earliest failed container: later failures usually follow from it."""
    known = [e for e in container_exits(snapshot) if e.pod and e.code != contract.EXIT_PREEMPTED]
    return min(known, key=lambda e: e.finished or "9", default=None)


def failure_mode(snapshot: Snapshot) -> str:
    """Return `failed` or `restarts (N so far)` for a run that a failed container stopped from training.

    Empty if nothing failed. Pods that saved and exited for a preemption do not count as failed.
    """
    if _failed_condition(snapshot):
        return "failed"
    leaves = objects.meta(snapshot.run).get("deletionTimestamp")
    if (
        leaves
        or not snapshot.admitted
        or gang.is_training(snapshot)
        or first_exit(snapshot) is None
    ):
        return ""
    return f"restarts ({restarts(snapshot)} so far)"


def finished(snapshot: Snapshot) -> Verdict | None:
    """The run is done."""
    for kind in states.SUCCESS:
        condition = objects.condition(snapshot.run, kind)
        if condition.get("status") == "True":
            when = snapshot.ago(condition.get("lastTransitionTime"))
            steps = "" if snapshot.has_program else " after all its steps"
            return Verdict(
                symptom="finished",
                headline=f"finished {when} ago{steps}",
                evidence=(_condition_line(snapshot.run, condition),),
                remedy=(
                    f"nothing to do; its files are in {contract.CHECKPOINT_MOUNT}/{snapshot.run_id}"
                    " on the team's volume",
                ),
            )
    return None


def bad_configuration(snapshot: Snapshot) -> Verdict | None:
    """The trainer rejected its configuration."""
    found = next((e for e in container_exits(snapshot) if e.code == contract.EXIT_BAD_CONFIG), None)
    if found is None or not _failed_condition(snapshot):
        return None
    return Verdict(
        symptom="bad-configuration",
        headline=f"failed: the trainer rejected its configuration (exit code {contract.EXIT_BAD_CONFIG})",
        evidence=(
            *log_tail(snapshot, found),
            *_exit_line(found),
            _condition_line(snapshot.run, _failed_condition(snapshot)),
        ),
        remedy=(
            *log_commands(snapshot, found),
            "correct the run file; a changed file is a new run, and this run is not retried",
        ),
    )


def out_of_memory(snapshot: Snapshot) -> Verdict | None:
    """A container exceeded its memory limit and was killed."""
    found = next((e for e in container_exits(snapshot) if e.reason == OUT_OF_MEMORY), None)
    over = _failed_condition(snapshot)
    # A plain Job keeps its failed pods alongside their replacements.
    if found is None or (gang.is_training(snapshot) and not over):
        return None
    how = "failed" if over else f"restarts ({restarts(snapshot)} so far)"
    return Verdict(
        symptom="out-of-memory",
        headline=f"{how}: container {found.container} exceeded its memory limit (OOMKilled)",
        evidence=(*_exit_line(found), *([_condition_line(snapshot.run, over)] if over else [])),
        remedy=(
            "raise resources.memory in the run file (resources.shm counts towards it),"
            " or lower the batch size per rank",
            *log_commands(snapshot, found),
        ),
    )


def failed(snapshot: Snapshot) -> Verdict | None:
    """The run failed for a reason that no other symptom explains."""
    condition = _failed_condition(snapshot)
    if not condition:
        return None
    known = list(container_exits(snapshot))
    first = next(
        (e for e in known if e.code != contract.EXIT_PREEMPTED), known[0] if known else None
    )
    code = f" with exit code {first.code}" if first else ""
    used_up = any(USED_UP in line.text for log in snapshot.logs for line in log.lines)
    limit = (
        " after its last restart" if used_up or "Restarts" in condition.get("reason", "") else ""
    )
    return Verdict(
        symptom="failed",
        headline=f"failed{code}{limit}",
        evidence=(
            _condition_line(snapshot.run, condition),
            *(_exit_line(first) if first else ()),
            *(log_tail(snapshot, first) if first else ()),
        ),
        remedy=(
            *log_commands(snapshot, first),
            "to retry, raise `version` in the run file; the new run has a new id and does not resume"
            " from this run's checkpoints",
        ),
    )


def stopped(snapshot: Snapshot) -> Verdict | None:
    """Stopped by `run stop`, or deactivated by Kueue: maxHours, too many requeues, a rejected admission check."""
    if stopped_runs.is_stopped(snapshot.run):
        return _stopped_by_user(snapshot)
    workload = snapshot.workload
    if workload is None or workload["spec"].get("active", True):
        return None
    evicted = objects.condition(workload, "Evicted")
    if _MAX_TIME in str(evicted.get("reason")) or _MAX_TIME in str(evicted.get("message")):
        headline = "was stopped after maxHours, the limit that its cost cap allows"
        remedy = "raise maxHours (and costCapUsd) and `version` in the run file"
    elif _NEVER_READY in str(evicted.get("reason")):
        headline = "was stopped after Kueue had requeued it as often as it may: its pods were not ready in time"
        remedy = (
            "the run's events and the logs of its last pods say why they did not start; then"
            f" kubectl patch {objects.reference(workload)} --type merge -p '"
            '{"spec":{"active":true}}' + "' queues it again, and counts anew"
        )
    else:
        headline = f"was deactivated: {evicted.get('message') or 'its Workload is not active'}"
        remedy = (
            f"kubectl patch {objects.reference(workload)} --type merge -p '"
            '{"spec":{"active":true}}' + "' queues it again"
        )
    return Verdict(
        symptom="stopped",
        headline=headline,
        evidence=(_condition_line(workload, evicted),),
        remedy=(remedy,),
    )


def _stopped_by_user(snapshot: Snapshot) -> Verdict:
    condition = objects.condition(snapshot.run, stopped_runs.CONDITION)
    when = condition["lastTransitionTime"]
    return Verdict(
        symptom="stopped",
        headline=f"was stopped with `run stop`{f' {snapshot.ago(when)} ago' if when else ''}",
        evidence=(f"configmap/{snapshot.run_id}: keeps what the run consists of",),
        remedy=(f"trainyard run resume {snapshot.run_id} continues it from its newest checkpoint",),
    )


def deleting(snapshot: Snapshot) -> Verdict | None:
    """The run is being deleted while its pods save."""
    since = objects.meta(snapshot.run).get("deletionTimestamp")
    if not since:
        return None
    alive = [p for p in snapshot.pods if objects.status(p).get("phase") in ("Pending", "Running")]
    held = objects.meta(snapshot.run).get("finalizers") or []
    return Verdict(
        symptom="leaving",
        headline=f"is being deleted (started {snapshot.ago(since)} ago);"
        f" {pluralize(len(alive), 'pod')} left",
        evidence=tuple(
            [f"{objects.reference(p)}: {objects.status(p).get('phase')}" for p in alive]
            + [f"{objects.reference(snapshot.run)}: held by {finalizer}" for finalizer in held]
        ),
        remedy=("wait; each pod has its grace period to save",),
    )


def restarts(snapshot: Snapshot) -> int:
    """Return the number of attempts after the first."""
    return int(objects.status(snapshot.run).get("restarts") or 0)


def log_tail(snapshot: Snapshot, ended: Exit) -> list[str]:
    """Return the last lines of a container's log, if they may be read."""
    return logs.log_tail(snapshot.logs, ended.pod, ended.container)


def log_commands(snapshot: Snapshot, ended: Exit | None) -> list[str]:
    """Return the command that shows the log, or where the run's events are if its pods are gone."""
    if ended is not None and ended.pod:
        return [f"kubectl logs -n {snapshot.namespace} {ended.pod} -c {ended.container}"]
    pods = objects.newest_first(snapshot.pods)
    if pods:
        return [f"kubectl logs -n {snapshot.namespace} {objects.name(pods[0])}"]
    return [
        f"its pods are gone; {contract.CHECKPOINT_MOUNT}/{snapshot.run_id}/{contract.EVENTS_FILE} on the team's"
        " volume lists its last events"
    ]


def _failed_condition(snapshot: Snapshot) -> Json:
    condition = objects.condition(snapshot.run, "Failed")
    return condition if condition.get("status") == "True" else {}


def _exit_line(ended: Exit) -> tuple[str, ...]:
    return (ended.evidence,) if ended.pod else ()


def _condition_line(item: Json, condition: Json) -> str:
    text = condition.get("message") or condition.get("reason") or "no message"
    return f"{objects.reference(item)}: {text}"


ENDED: Final[tuple[Symptom, ...]] = (failed, deleting, stopped)
"""Ends without a known cause."""
