"""Runs that Kueue has queued and not admitted: backoff, nodes that are being made, others before them."""

from __future__ import annotations

import re
from typing import Final

from ops import objects
from ops.objects import Json
from ops.snapshot import Snapshot, format_duration, pluralize
from ops.verdict import Verdict

_SHOWN: Final = 6
"""Runs that are listed one by one."""
_NO_TOPOLOGY_FIT: Final = re.compile(r"topology \"[^\"]*\" (doesn't allow|allows) to fit")


def backoff(snapshot: Snapshot) -> Verdict | None:
    """It was sent back and has to wait before it is tried again."""
    state = objects.status(snapshot.workload).get("requeueState") or {}
    until = objects.time(state.get("requeueAt"))
    if snapshot.workload is None or until is None or until <= snapshot.now or snapshot.admitted:
        return None
    evicted = objects.condition(snapshot.workload, "Evicted")
    why = {
        "PodsReadyTimeout": "it was not whole in time",
        "AdmissionCheck": "no nodes were found for it",
    }.get(str(evicted.get("reason")), "it was sent back")
    left = (until - snapshot.now).total_seconds()
    return Verdict(
        symptom="backoff",
        headline=f"{why}; it is tried again at {until:%H:%M:%S} UTC, in {format_duration(left)}",
        evidence=(
            f"{workload_name(snapshot)}: {evicted.get('message', 'evicted')}",
            f"{workload_name(snapshot)}: sent back {pluralize(int(state.get('count', 1)), 'time')}",
        ),
        remedy=(
            "what its pods said then: kubectl get events -n"
            f" {snapshot.namespace} --sort-by .lastTimestamp",
        ),
    )


def waiting_for_nodes(snapshot: Snapshot) -> Verdict | None:
    """It has its quota; nodes for the whole gang are being made."""
    reserved = objects.condition_is_true(snapshot.workload, "QuotaReserved")
    if snapshot.workload is None or not reserved or snapshot.admitted:
        return None
    checks = objects.status(snapshot.workload).get("admissionChecks") or []
    open_checks = [check for check in checks if check.get("state") != "Ready"]
    uid = objects.meta(snapshot.workload).get("uid", "")
    asked_for = [r for r in snapshot.provisioning if objects.owned_by(r, uid)]
    since = objects.condition(snapshot.workload, "QuotaReserved").get("lastTransitionTime")
    return Verdict(
        symptom="waiting-for-nodes",
        headline=f"has its quota since {snapshot.ago(since)} and waits for nodes for all of its pods",
        evidence=tuple(
            [f"{objects.reference(r)}: {_conditions(r)}" for r in asked_for]
            + [
                f"{workload_name(snapshot)}: check {check['name']} is {check.get('state')}:"
                f" {check.get('message') or 'no word yet'}"
                for check in open_checks
            ]
        ),
        remedy=(
            "spot may be short: the autoscaler asks again by itself",
            "kubectl logs -n kube-system deploy/cluster-autoscaler says what the cloud answers",
        ),
    )


def _conditions(item: Json) -> str:
    found = [
        f"{c['type']}: {c.get('message') or c.get('reason', '')}"
        for c in objects.status(item).get("conditions") or []
        if c["status"] == "True"
    ]
    return "; ".join(found) or "not answered yet"


def preempting(snapshot: Snapshot) -> Verdict | None:
    """Others are being stopped for it."""
    message = kueue_message(snapshot)
    if "Pending the preemption" not in message:
        return None
    return Verdict(
        symptom="preempting",
        headline="is about to start: runs that hold its quota are saving and stopping",
        evidence=(f"{workload_name(snapshot)}: {message}",),
        remedy=("wait; a preempted run has its grace period to write a checkpoint",),
    )


def behind_others(snapshot: Snapshot) -> Verdict | None:
    """Others are tried before it."""
    ahead = runs_ahead(snapshot)
    if not is_pending(snapshot) or not ahead:
        return None
    return Verdict(
        symptom="behind-others",
        headline=f"waits for its turn{queue_position(snapshot)}",
        evidence=(
            *(
                f"{objects.reference(w)}: {objects.run_id_of(w)} is before it"
                for w in ahead[:_SHOWN]
            ),
            *(
                [f"{workload_name(snapshot)}: {kueue_message(snapshot)}"]
                if kueue_message(snapshot)
                else []
            ),
        ),
        remedy=("runs go by priority, then by age; `priority` in the run file is the lever",),
    )


def queued(snapshot: Snapshot) -> Verdict | None:
    """Nothing known keeps it; Kueue's last words are all there is."""
    if not is_pending(snapshot):
        return None
    since = objects.meta(snapshot.workload or {}).get("creationTimestamp")
    return Verdict(
        symptom="queued",
        headline=f"is queued for {snapshot.ago(since)} and not admitted yet",
        evidence=(f"{workload_name(snapshot)}: {kueue_message(snapshot) or 'not looked at yet'}",),
        remedy=("ask again in a few seconds; if it stays, kubectl describe the Workload above",),
    )


def runs_ahead(snapshot: Snapshot) -> list[Json]:
    """Pending Workloads of the same queue that are tried first: higher priority, else older."""
    order = _queue_order(snapshot)
    names = [objects.name(w) for w in order]
    mine = objects.name(snapshot.workload or {})
    return order[: names.index(mine)] if mine in names else []


def queue_position(snapshot: Snapshot) -> str:
    """`, place 2 of 5 in its queue`; empty when it is alone."""
    total = len(_queue_order(snapshot))
    return f", place {len(runs_ahead(snapshot)) + 1} of {total} in its queue" if total > 1 else ""


def _queue_order(snapshot: Snapshot) -> list[Json]:
    waiting = [
        w
        for w in snapshot.workloads
        if objects.meta(w).get("namespace") == snapshot.namespace
        and w["spec"].get("queueName") == snapshot.queue_name
        and w["spec"].get("active", True)
        and not objects.condition_is_true(w, "QuotaReserved")
        and not objects.condition_is_true(w, "Finished")
    ]
    return sorted(waiting, key=lambda w: (-int(w["spec"].get("priority") or 0), _queued_at(w)))


def _queued_at(workload: Json) -> str:
    """A run that could not start goes behind those that came meanwhile; a preempted one does not."""
    evicted = objects.condition(workload, "Evicted")
    back = evicted.get("reason") in ("PodsReadyTimeout", "AdmissionCheck")
    if evicted.get("status") == "True" and back:
        return str(evicted["lastTransitionTime"])
    return str(objects.meta(workload).get("creationTimestamp"))


def is_pending(snapshot: Snapshot) -> bool:
    return snapshot.workload is not None and not objects.condition_is_true(
        snapshot.workload, "QuotaReserved"
    )


def kueue_message(snapshot: Snapshot) -> str:
    return str(objects.condition(snapshot.workload, "QuotaReserved").get("message", ""))


def lacks_topology_fit(snapshot: Snapshot) -> bool:
    """Whether Kueue has quota for it, and no nodes on which the whole gang fits."""
    return bool(_NO_TOPOLOGY_FIT.search(kueue_message(snapshot)))


def workload_name(snapshot: Snapshot) -> str:
    return objects.reference(snapshot.workload or {})
