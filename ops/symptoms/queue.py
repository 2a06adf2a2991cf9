"""Runs that their queue blocks: not named, missing, stopped, inactive, or another team's."""

from __future__ import annotations

from typing import Final

from infra.domain import naming
from ops import objects
from ops.objects import Json
from ops.snapshot import Snapshot, Symptom, Verdict

KUEUE_SILENT_AFTER_S: Final = 30.0
"""Kueue creates a Workload within two seconds; after this time it is probably down."""

_STOPPED: Final = ("Hold", "HoldAndDrain")


def no_queue(snapshot: Snapshot) -> Verdict | None:
    if snapshot.queue_name or snapshot.pods or snapshot.other_scheduler:
        return None
    return Verdict(
        symptom="no-queue",
        headline="names no queue, so it is never admitted",
        evidence=(f"{objects.reference(snapshot.run)}: no label {naming.QUEUE_NAME}",),
        remedy=("delete it and launch it from a run file: launchers set the label",),
    )


def queue_missing(snapshot: Snapshot) -> Verdict | None:
    if not snapshot.queue_name:
        return None
    if snapshot.local_queue is None:
        if "localqueues" in snapshot.hidden:
            return None
        return _missing(snapshot, f"localqueue/{snapshot.queue_name} -n {snapshot.namespace}")
    behind = snapshot.local_queue["spec"].get("clusterQueue", "")
    if snapshot.cluster_queue is None and "clusterqueues" not in snapshot.hidden:
        return _missing(snapshot, f"clusterqueue/{behind}")
    return None


def _missing(snapshot: Snapshot, what: str) -> Verdict:
    return Verdict(
        symptom="queue-missing",
        headline=f"waits for a queue that does not exist: {what.partition(' ')[0]}",
        evidence=(f"{what}: not found",),
        remedy=(
            f"check that team {snapshot.team} is in the stack file; `pulumi up` creates its queue",
        ),
    )


def held(snapshot: Snapshot) -> Verdict | None:
    for queue in (snapshot.local_queue, snapshot.cluster_queue):
        policy = ((queue or {}).get("spec") or {}).get("stopPolicy")
        if queue is None or policy not in _STOPPED or (snapshot.admitted and policy == "Hold"):
            continue
        return Verdict(
            symptom="queue-held",
            headline="waits: its queue is stopped"
            + (", and its running runs are saved and requeued" if policy == "HoldAndDrain" else ""),
            evidence=(f"{objects.reference(queue)}: stopPolicy {policy}",),
            remedy=(_resume_command(queue, snapshot),),
        )
    return None


def _resume_command(queue: Json, snapshot: Snapshot) -> str:
    if queue.get("kind") == "ClusterQueue":
        return f"trainyard stack resume --team {snapshot.team}, when the maintenance is over"
    return f"kubectl patch {objects.reference(queue)} --type merge -p '" + (
        '{"spec":{"stopPolicy":"None"}}' + "'"
    )


def inactive(snapshot: Snapshot) -> Verdict | None:
    for queue in (snapshot.cluster_queue, snapshot.local_queue):
        condition = objects.condition(queue, "Active")
        if queue is not None and condition.get("status") == "False" and not snapshot.admitted:
            return Verdict(
                symptom="queue-inactive",
                headline=f"waits: its queue cannot admit anything ({condition['reason']})",
                evidence=(f"{objects.reference(queue)}: {condition['message']}",),
                remedy=(
                    "`pulumi up` creates what the queue refers to (flavors, topology, checks)",
                ),
            )
    return None


def wrong_team(snapshot: Snapshot) -> Verdict | None:
    reserved = objects.condition(snapshot.workload, "QuotaReserved")
    if snapshot.workload is None or "namespace doesn't match" not in reserved.get("message", ""):
        return None
    return Verdict(
        symptom="queue-closed",
        headline="is never admitted: its queue belongs to another team",
        evidence=(f"{objects.reference(snapshot.workload)}: {reserved['message']}",),
        remedy=(f"launch it in the queue of team {snapshot.team or 'that owns the namespace'}",),
    )


def not_seen_by_kueue(snapshot: Snapshot) -> Verdict | None:
    if not snapshot.queue_name:
        return None
    if snapshot.workload is not None or "workloads" in snapshot.hidden:
        return None
    created = objects.time(objects.meta(snapshot.run).get("creationTimestamp"))
    age = (snapshot.now - created).total_seconds() if created else 0.0
    if not (snapshot.run.get("spec") or {}).get("suspend") and not _suspended_by_run_policy(
        snapshot.run
    ):
        return Verdict(
            symptom="not-queued",
            headline="is not suspended and has no Workload: Kueue does not queue it",
            evidence=(f"{objects.reference(snapshot.run)}: no Workload, suspend is not set",),
            remedy=(
                f"check that {snapshot.run.get('kind')} is in integrations.frameworks of Kueue's"
                " configuration",
                "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations",
            ),
        )
    late = age > KUEUE_SILENT_AFTER_S
    return Verdict(
        symptom="kueue-silent" if late else "just-created",
        headline=f"was created {age:.0f} s ago and Kueue has not queued it"
        + ("" if late else " yet"),
        evidence=(f"{objects.reference(snapshot.run)}: suspended, no Workload",),
        remedy=(
            (
                f"check that Kueue runs: kubectl get pods -n {naming.KUEUE_NAMESPACE};"
                " on the sandbox: make status",
            )
            if late
            else ("try again in a few seconds",)
        ),
    )


def _suspended_by_run_policy(run: Json) -> bool:
    """Whether `runPolicy.suspend` is set, as Training Operator and MPI Operator do."""
    return bool(((run.get("spec") or {}).get("runPolicy") or {}).get("suspend"))


CHECKS: Final[tuple[Symptom, ...]] = (
    no_queue,
    queue_missing,
    held,
    inactive,
    not_seen_by_kueue,
    wrong_team,
)
"""Causes in the queue, specific ones first."""
