"""Runs whose queue is the trouble: not named, missing, held, broken, closed to them."""

from __future__ import annotations

from typing import Final

from infra.domain import naming
from ops import objects
from ops.objects import Json
from ops.snapshot import Snapshot
from ops.verdict import Verdict

KUEUE_SILENT_AFTER_S: Final = 30.0
"""Kueue makes a Workload within a second or two; after so long nobody is working."""

_STOPPED: Final = ("Hold", "HoldAndDrain")


def no_queue(snapshot: Snapshot) -> Verdict | None:
    """It names no queue, nobody else schedules it, and it has no pods."""
    if snapshot.queue_name or snapshot.pods or snapshot.other_scheduler:
        return None
    return Verdict(
        symptom="no-queue",
        headline="names no queue, so nothing will ever admit it",
        evidence=(f"{objects.reference(snapshot.run)}: no label {naming.QUEUE_NAME}",),
        remedy=("delete it and launch it from a run file; launchers set the label",),
    )


def queue_missing(snapshot: Snapshot) -> Verdict | None:
    """Its LocalQueue, or the ClusterQueue behind it, does not exist."""
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
        remedy=(f"is team {snapshot.team} in the stack's file? `pulumi up` creates its queue",),
    )


def held(snapshot: Snapshot) -> Verdict | None:
    """Somebody stopped the queue."""
    for queue in (snapshot.local_queue, snapshot.cluster_queue):
        policy = ((queue or {}).get("spec") or {}).get("stopPolicy")
        if queue is None or policy not in _STOPPED or (snapshot.admitted and policy == "Hold"):
            continue
        return Verdict(
            symptom="queue-held",
            headline="waits: its queue is stopped"
            + (", and what runs in it is saved and put back" if policy == "HoldAndDrain" else ""),
            evidence=(f"{objects.reference(queue)}: stopPolicy {policy}",),
            remedy=(_resume_command(queue, snapshot),),
        )
    return None


def _resume_command(queue: Json, snapshot: Snapshot) -> str:
    if queue.get("kind") == "ClusterQueue":
        return f"python -m ops resume --team {snapshot.team}, when its platform is whole again"
    return f"kubectl patch {objects.reference(queue)} --type merge -p '" + (
        '{"spec":{"stopPolicy":"None"}}' + "'"
    )


def inactive(snapshot: Snapshot) -> Verdict | None:
    """The queue names something that is not there."""
    for queue in (snapshot.cluster_queue, snapshot.local_queue):
        condition = objects.condition(queue, "Active")
        if queue is not None and condition.get("status") == "False" and not snapshot.admitted:
            return Verdict(
                symptom="queue-inactive",
                headline=f"waits: its queue cannot admit anything ({condition['reason']})",
                evidence=(f"{objects.reference(queue)}: {condition['message']}",),
                remedy=("`pulumi up` creates what the queue names (flavors, topology, checks)",),
            )
    return None


def wrong_team(snapshot: Snapshot) -> Verdict | None:
    """The ClusterQueue does not take runs of this namespace."""
    reserved = objects.condition(snapshot.workload, "QuotaReserved")
    if snapshot.workload is None or "namespace doesn't match" not in reserved.get("message", ""):
        return None
    return Verdict(
        symptom="queue-closed",
        headline="waits for ever: its queue is another team's",
        evidence=(f"{objects.reference(snapshot.workload)}: {reserved['message']}",),
        remedy=(
            f"launch it as team {snapshot.team or 'that owns the namespace'}, in its own queue",
        ),
    )


def not_seen_by_kueue(snapshot: Snapshot) -> Verdict | None:
    """Kueue has not looked at it."""
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
                f"is {snapshot.run.get('kind')} among the frameworks in Kueue's configuration?",
                "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations",
            ),
        )
    late = age > KUEUE_SILENT_AFTER_S
    return Verdict(
        symptom="kueue-silent" if late else "just-created",
        headline=f"was created {age:.0f} s ago and Kueue has not looked at it"
        + ("" if late else " yet"),
        evidence=(f"{objects.reference(snapshot.run)}: suspended, no Workload",),
        remedy=(
            ("is Kueue running? kubectl get pods -n kueue-system; on the sandbox: make status",)
            if late
            else ("ask again in a few seconds",)
        ),
    )


def _suspended_by_run_policy(run: Json) -> bool:
    """Training Operator and MPI Operator keep `suspend` in here."""
    return bool(((run.get("spec") or {}).get("runPolicy") or {}).get("suspend"))
