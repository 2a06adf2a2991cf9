"""Runs that are queued and not admitted: requeue backoff, node provisioning, runs ahead of them."""

from __future__ import annotations

import re
from typing import Final

from ops import objects
from ops.objects import Json
from ops.runs import states
from ops.snapshot import Snapshot, Symptom, Verdict, format_duration, pluralize

_SHOWN: Final = 6
"""Runs listed individually."""
_NO_TOPOLOGY_FIT: Final = re.compile(r"topology \"[^\"]*\" (doesn't allow|allows) to fit")


def backoff(snapshot: Snapshot) -> Verdict | None:
    state = objects.status(snapshot.workload).get("requeueState") or {}
    until = objects.time(state.get("requeueAt"))
    if snapshot.workload is None or until is None or until <= snapshot.now or snapshot.admitted:
        return None
    evicted = objects.condition(snapshot.workload, "Evicted")
    why = {
        "PodsReadyTimeout": "its pods were not ready in time",
        "AdmissionCheck": "no nodes were found for it",
    }.get(str(evicted.get("reason")), "it was evicted")
    left = (until - snapshot.now).total_seconds()
    return Verdict(
        symptom="backoff",
        headline=f"was requeued ({why}); next attempt at {until:%H:%M:%S} UTC, in {format_duration(left)}",
        evidence=(
            f"{workload_name(snapshot)}: {evicted.get('message', 'evicted')}",
            f"{workload_name(snapshot)}: requeued {pluralize(int(state.get('count', 1)), 'time')}",
        ),
        remedy=(
            "see the events of its pods: kubectl get events -n"
            f" {snapshot.namespace} --sort-by .lastTimestamp",
        ),
    )


def waiting_for_nodes(snapshot: Snapshot) -> Verdict | None:
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
        headline=f"reserved quota {snapshot.ago(since)} ago and waits for nodes for all its pods",
        evidence=tuple(
            [f"{objects.reference(r)}: {_conditions(r)}" for r in asked_for]
            + [
                f"{workload_name(snapshot)}: check {check['name']} is {check.get('state')}:"
                f" {check.get('message') or 'no message yet'}"
                for check in open_checks
            ]
        ),
        remedy=(
            "spot capacity may be short: the autoscaler retries automatically",
            "kubectl logs -n kube-system deploy/cluster-autoscaler shows the cloud's responses",
        ),
    )


def _conditions(item: Json) -> str:
    found = [
        f"{c['type']}: {c.get('message') or c.get('reason', '')}"
        for c in objects.status(item).get("conditions") or []
        if c["status"] == "True"
    ]
    return "; ".join(found) or "no condition yet"


def preempting(snapshot: Snapshot) -> Verdict | None:
    message = kueue_message(snapshot)
    if "Pending the preemption" not in message:
        return None
    return Verdict(
        symptom="preempting",
        headline="is about to start: the runs that hold its quota are being preempted",
        evidence=(f"{workload_name(snapshot)}: {message}",),
        remedy=("wait; a preempted run has its grace period to save",),
    )


def behind_others(snapshot: Snapshot) -> Verdict | None:
    ahead = runs_ahead(snapshot)
    if not is_pending(snapshot) or not ahead:
        return None
    return Verdict(
        symptom="behind-others",
        headline=f"waits behind other runs{queue_position(snapshot)}",
        evidence=(
            *(
                f"{objects.reference(w)}: {objects.run_id_of(w)} is ahead of it"
                for w in ahead[:_SHOWN]
            ),
            *(
                [f"{workload_name(snapshot)}: {kueue_message(snapshot)}"]
                if kueue_message(snapshot)
                else []
            ),
        ),
        remedy=("runs are ordered by priority, then age; raise `priority` in the run file",),
    )


def queued(snapshot: Snapshot) -> Verdict | None:
    if not is_pending(snapshot):
        return None
    since = objects.meta(snapshot.workload or {}).get("creationTimestamp")
    return Verdict(
        symptom="queued",
        headline=f"has been queued for {snapshot.ago(since)} and is not admitted yet",
        evidence=(f"{workload_name(snapshot)}: {kueue_message(snapshot) or 'no message yet'}",),
        remedy=(
            f"try again in a few seconds; if it stays, kubectl describe {workload_name(snapshot)}",
        ),
    )


def runs_ahead(snapshot: Snapshot) -> list[Json]:
    order = _queue_order(snapshot)
    names = [objects.name(w) for w in order]
    mine = objects.name(snapshot.workload or {})
    return order[: names.index(mine)] if mine in names else []


def queue_position(snapshot: Snapshot) -> str:
    """Return `, position 2 of 5 in its queue`; empty if no other run is queued."""
    total = len(_queue_order(snapshot))
    return (
        f", position {len(runs_ahead(snapshot)) + 1} of {total} in its queue" if total > 1 else ""
    )


def _queue_order(snapshot: Snapshot) -> list[Json]:
    return states.queue_order(
        [
            w
            for w in snapshot.workloads
            if objects.meta(w).get("namespace") == snapshot.namespace
            and w["spec"].get("queueName") == snapshot.queue_name
        ]
    )


def is_pending(snapshot: Snapshot) -> bool:
    return snapshot.workload is not None and not objects.condition_is_true(
        snapshot.workload, "QuotaReserved"
    )


def kueue_message(snapshot: Snapshot) -> str:
    return str(objects.condition(snapshot.workload, "QuotaReserved").get("message", ""))


def lacks_topology_fit(snapshot: Snapshot) -> bool:
    """Whether Kueue has quota but no topology domain fits the whole gang."""
    return bool(_NO_TOPOLOGY_FIT.search(kueue_message(snapshot)))


def workload_name(snapshot: Snapshot) -> str:
    return objects.reference(snapshot.workload or {})


ADMITTING: Final[tuple[Symptom, ...]] = (backoff, waiting_for_nodes, preempting)
"""A run that Kueue is about to admit."""
