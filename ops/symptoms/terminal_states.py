"""Runs that are over, or about to be: finished, failed and by what, stopped, being deleted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ops import gang, logs, objects
from ops.objects import Json
from ops.snapshot import Snapshot, pluralize
from ops.verdict import Verdict
from training import spec

_SUCCESS_CONDITIONS: Final = ("Completed", "Complete", "Succeeded")
"""JobSet, Job and TrainJob, Training Operator and MPI Operator."""
_EXIT_CODE: Final = re.compile(r"exit code (\d+)")
_MAX_TIME: Final = "MaximumExecutionTimeExceeded"
OUT_OF_MEMORY: Final = "OOMKilled"


@dataclass(frozen=True, kw_only=True)
class Exit:
    """How a container ended. `pod`: its name, empty where only the Job still tells."""

    pod: str
    container: str
    code: int
    reason: str
    finished: str = ""
    """Time stamp, empty where it is not told."""

    @property
    def evidence(self) -> str:
        """`OBJECT: what it says`."""
        reason = f" ({self.reason})" if self.reason else ""
        return f"pod/{self.pod}: container {self.container} exited with {self.code}{reason}"


def container_exits(snapshot: Snapshot) -> Iterator[Exit]:
    """Containers of the run that ended badly, as far as anything still tells."""
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
    """The container that ended badly before all others: they followed it."""
    known = [e for e in container_exits(snapshot) if e.pod and e.code != spec.EXIT_PREEMPTED]
    return min(known, key=lambda e: e.finished or "9", default=None)


def failure_mode(snapshot: Snapshot) -> str:
    """How a run that does not train because something of it ended badly goes on: `failed`, `restarts`.

    Empty when nothing is broken. Pods that saved and stopped are not.
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
    """It did all it had to."""
    for kind in _SUCCESS_CONDITIONS:
        condition = objects.condition(snapshot.run, kind)
        if condition.get("status") == "True":
            when = snapshot.ago(condition.get("lastTransitionTime"))
            return Verdict(
                symptom="finished",
                headline=f"finished {when} ago, with all its steps",
                evidence=(_condition_line(snapshot.run, condition),),
                remedy=(
                    f"nothing; its checkpoints are in {spec.CHECKPOINT_MOUNT}/{snapshot.run_id}"
                    " of the team's volume",
                ),
            )
    return None


def bad_configuration(snapshot: Snapshot) -> Verdict | None:
    """The trainer said that its configuration cannot work."""
    found = next((e for e in container_exits(snapshot) if e.code == spec.EXIT_BAD_CONFIG), None)
    if found is None or not _failed_condition(snapshot):
        return None
    return Verdict(
        symptom="bad-configuration",
        headline=f"failed: its configuration cannot work (exit code {spec.EXIT_BAD_CONFIG})",
        evidence=(
            *log_tail(snapshot, found),
            *_exit_line(found),
            _condition_line(snapshot.run, _failed_condition(snapshot)),
        ),
        remedy=(
            *log_commands(snapshot, found),
            "correct the run file; what changes is a new run, and this one is never retried",
        ),
    )


def out_of_memory(snapshot: Snapshot) -> Verdict | None:
    """A container took more memory than its limit, and was killed."""
    found = next((e for e in container_exits(snapshot) if e.reason == OUT_OF_MEMORY), None)
    over = _failed_condition(snapshot)
    # A plain Job keeps its failed pods beside the one that replaced them.
    if found is None or (gang.is_training(snapshot) and not over):
        return None
    how = "failed" if over else f"restarts ({restarts(snapshot)} so far)"
    return Verdict(
        symptom="out-of-memory",
        headline=f"{how}: the container {found.container} was killed for want of memory",
        evidence=(*_exit_line(found), *([_condition_line(snapshot.run, over)] if over else [])),
        remedy=(
            "raise resources.memory in the run file (or resources.shm, which counts towards it),"
            " or lower the batch per rank",
            *log_commands(snapshot, found),
        ),
    )


def failed(snapshot: Snapshot) -> Verdict | None:
    """It ended badly in any other way."""
    condition = _failed_condition(snapshot)
    if not condition:
        return None
    known = list(container_exits(snapshot))
    first = next((e for e in known if e.code != spec.EXIT_PREEMPTED), known[0] if known else None)
    code = f" with exit code {first.code}" if first else ""
    limit = " after its last restart" if "Restarts" in condition.get("reason", "") else ""
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
            "to try the same again, raise `version` in the run file; it starts from its own checkpoints"
            " only under its own id",
        ),
    )


def stopped(snapshot: Snapshot) -> Verdict | None:
    """Kueue gave it up: it had its hours, or was sent back too often, or a check refused it."""
    workload = snapshot.workload
    if workload is None or workload["spec"].get("active", True):
        return None
    evicted = objects.condition(workload, "Evicted")
    if _MAX_TIME in str(evicted.get("reason")) or _MAX_TIME in str(evicted.get("message")):
        headline = "was stopped: it ran for all of its maxHours, which is what its cost cap permits"
        remedy = "raise maxHours (and costCapUsd) and `version` in the run file"
    else:
        headline = f"was given up: {evicted.get('message') or 'its Workload is not active'}"
        remedy = (
            f"kubectl patch {objects.reference(workload)} --type merge -p '"
            '{"spec":{"active":true}}' + "' lets it queue again"
        )
    return Verdict(
        symptom="stopped",
        headline=headline,
        evidence=(_condition_line(workload, evicted),),
        remedy=(remedy,),
    )


def deleting(snapshot: Snapshot) -> Verdict | None:
    """It is being deleted, and its pods save first."""
    since = objects.meta(snapshot.run).get("deletionTimestamp")
    if not since:
        return None
    alive = [p for p in snapshot.pods if objects.status(p).get("phase") in ("Pending", "Running")]
    held = objects.meta(snapshot.run).get("finalizers") or []
    return Verdict(
        symptom="leaving",
        headline=f"is being deleted since {snapshot.ago(since)}; "
        f"{pluralize(len(alive), 'pod')} still {'saves' if len(alive) == 1 else 'save'}",
        evidence=tuple(
            [f"{objects.reference(p)}: {objects.status(p).get('phase')}" for p in alive]
            + [f"{objects.reference(snapshot.run)}: held by {finalizer}" for finalizer in held]
        ),
        remedy=("wait; each pod has its grace period to write a checkpoint",),
    )


def restarts(snapshot: Snapshot) -> int:
    """Attempts after the first."""
    return int(objects.status(snapshot.run).get("restarts") or 0)


def log_tail(snapshot: Snapshot, ended: Exit) -> list[str]:
    """The end of a container's log, where it may be read."""
    return logs.log_tail(snapshot.logs, ended.pod, ended.container)


def log_commands(snapshot: Snapshot, ended: Exit | None) -> list[str]:
    """Where the last words are."""
    if ended is not None and ended.pod:
        return [f"kubectl logs -n {snapshot.namespace} {ended.pod} -c {ended.container}"]
    pods = objects.newest_first(snapshot.pods)
    if pods:
        return [f"kubectl logs -n {snapshot.namespace} {objects.name(pods[0])}"]
    return [
        f"its pods are gone; {spec.CHECKPOINT_MOUNT}/{snapshot.run_id}/{spec.EVENTS_FILE} on the team's"
        " volume says what the trainer did last"
    ]


def _failed_condition(snapshot: Snapshot) -> Json:
    condition = objects.condition(snapshot.run, "Failed")
    return condition if condition.get("status") == "True" else {}


def _exit_line(ended: Exit) -> tuple[str, ...]:
    return (ended.evidence,) if ended.pod else ()


def _condition_line(item: Json, condition: Json) -> str:
    text = condition.get("message") or condition.get("reason") or "says nothing"
    return f"{objects.reference(item)}: {text}"
