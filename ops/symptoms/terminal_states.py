"""Runs that have ended or are ending: finished, failed, stopped, being deleted."""

from __future__ import annotations

from typing import Final

from ops import logs, objects
from ops.runs import states
from ops.runs.exits import Exit, container_exits, first_exit
from ops.runs.states import Cause, Ending
from ops.snapshot import Snapshot, Symptom, Verdict, pluralize
from trainyard import contract
from trainyard.restart_budget import USED_UP

OUT_OF_MEMORY: Final = "OOMKilled"


def failure_mode(snapshot: Snapshot) -> str:
    """Return `failed` or `restarts (N so far)` for a run that a failed container stopped from training.

    Empty if nothing failed. Pods that saved and exited for a preemption do not count as failed.
    """
    if _failure(snapshot):
        return "failed"
    leaves = objects.meta(snapshot.run).get("deletionTimestamp")
    if leaves or not snapshot.admitted or snapshot.is_training or first_exit(snapshot) is None:
        return ""
    return f"restarts ({restarts(snapshot)} so far)"


def finished(snapshot: Snapshot) -> Verdict | None:
    ending = snapshot.ending
    if ending is None or ending.state != states.FINISHED:
        return None
    steps = "" if snapshot.has_program else " after all its steps"
    return Verdict(
        symptom="finished",
        headline=f"finished {snapshot.ago(ending.at)} ago{steps}",
        evidence=(_ending_line(ending),),
        remedy=(
            f"nothing to do; its files are in {contract.CHECKPOINT_MOUNT}/{snapshot.run_id}"
            " on the team's volume",
        ),
    )


def bad_configuration(snapshot: Snapshot) -> Verdict | None:
    found = next((e for e in container_exits(snapshot) if e.code == contract.EXIT_BAD_CONFIG), None)
    over = _failure(snapshot)
    if found is None or over is None:
        return None
    return Verdict(
        symptom="bad-configuration",
        headline=f"failed: the trainer rejected its configuration (exit code {contract.EXIT_BAD_CONFIG})",
        evidence=(
            *log_tail(snapshot, found),
            *_exit_line(found),
            _ending_line(over),
        ),
        remedy=(
            *log_commands(snapshot, found),
            "correct the run file; a changed file is a new run, and this run is not retried",
        ),
    )


def out_of_memory(snapshot: Snapshot) -> Verdict | None:
    found = next((e for e in container_exits(snapshot) if e.reason == OUT_OF_MEMORY), None)
    over = _failure(snapshot)
    # A plain Job keeps its failed pods alongside their replacements.
    if found is None or (snapshot.is_training and not over):
        return None
    how = "failed" if over else f"restarts ({restarts(snapshot)} so far)"
    return Verdict(
        symptom="out-of-memory",
        headline=f"{how}: container {found.container} exceeded its memory limit (OOMKilled)",
        evidence=(*_exit_line(found), *([_ending_line(over)] if over else [])),
        remedy=(
            "raise resources.memory in the run file (resources.shm counts towards it),"
            " or lower the batch size per rank",
            *log_commands(snapshot, found),
        ),
    )


def failed(snapshot: Snapshot) -> Verdict | None:
    over = _failure(snapshot)
    if over is None:
        return None
    first = first_exit(snapshot) or next(container_exits(snapshot), None)
    code = f" with exit code {first.code}" if first else ""
    used_up = any(USED_UP in line.text for log in snapshot.logs for line in log.lines)
    limit = (
        " after its last restart"
        if used_up or "Restarts" in over.condition.get("reason", "")
        else ""
    )
    return Verdict(
        symptom="failed",
        headline=f"failed{code}{limit}",
        evidence=(
            _ending_line(over),
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
    ending = snapshot.ending
    if ending is None or ending.state != states.STOPPED:
        return None
    if ending.cause is Cause.USER:
        return Verdict(
            symptom="stopped",
            headline="was stopped with `run stop`"
            + (f" {snapshot.ago(ending.at)} ago" if ending.at else ""),
            evidence=(f"configmap/{snapshot.run_id}: keeps what the run consists of",),
            remedy=(
                f"trainyard run resume {snapshot.run_id} continues it from its newest checkpoint",
            ),
        )
    again = (
        f"kubectl patch {objects.reference(ending.of)} --type merge -p '"
        '{"spec":{"active":true}}' + "' queues it again"
    )
    if ending.cause is Cause.TIME_LIMIT:
        headline = "was stopped after maxHours, the limit that its cost cap allows"
        remedy = "raise maxHours (and costCapUsd) and `version` in the run file"
    elif ending.cause is Cause.NEVER_READY:
        headline = "was stopped after Kueue had requeued it as often as it may: its pods were not ready in time"
        remedy = (
            "the run's events and the logs of its last pods say why they did not start; then"
            f" {again}, and counts anew"
        )
    else:
        headline = f"was deactivated: {ending.message or 'its Workload is not active'}"
        remedy = again
    return Verdict(
        symptom="stopped", headline=headline, evidence=(_ending_line(ending),), remedy=(remedy,)
    )


def deleting(snapshot: Snapshot) -> Verdict | None:
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


def _exit_line(ended: Exit) -> tuple[str, ...]:
    return (ended.evidence,) if ended.pod else ()


def _failure(snapshot: Snapshot) -> Ending | None:
    ending = snapshot.ending
    return ending if ending and ending.state == states.FAILED else None


def _ending_line(ending: Ending) -> str:
    text = ending.message or ending.condition.get("reason") or "no message"
    return f"{objects.reference(ending.of)}: {text}"


ENDED: Final[tuple[Symptom, ...]] = (failed, deleting, stopped)
"""Ends without a known cause."""
