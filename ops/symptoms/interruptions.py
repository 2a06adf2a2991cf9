"""Past interruptions of a run: preemptions, evictions, restarts."""

from __future__ import annotations

import re
from typing import Final

from infra.domain import naming
from ops import logs, objects, quota
from ops.objects import Json
from ops.snapshot import Snapshot, pluralize
from ops.steer import memory
from ops.symptoms import terminal_states
from trainyard import contract
from trainyard.contract import NO_CHECKPOINT_LINE

_PREEMPTOR: Final = re.compile(r"workload \(UID: ([^,)]*), JobUID: ([^)]*)\) due to ([^;]*)")


def preempted_by(snapshot: Snapshot) -> list[str]:
    """Return which run preempted it, and why."""
    condition = objects.condition(snapshot.workload, "Preempted")
    if not condition:
        return []
    when = snapshot.ago(condition.get("lastTransitionTime"))
    found = _PREEMPTOR.search(condition.get("message", ""))
    if found is None:
        return [f"preempted {when} ago: {condition.get('message') or condition.get('reason')}"]
    uid, job_uid, why = found.groups()
    return [f"preempted {when} ago by {_preemptor(snapshot, uid, job_uid)}: {why}"]


def _preemptor(snapshot: Snapshot, uid: str, job_uid: str) -> str:
    for workload in snapshot.workloads:
        mine = objects.meta(workload).get("uid")
        if mine == uid or objects.owned_by(workload, job_uid):
            return f"{objects.run_id_of(workload)} (team {quota.team_of(workload)})"
    return f"a deleted run (Workload UID {uid})"


def steered(snapshot: Snapshot) -> list[str]:
    """Return which pools it may have, and why, where runs are steered."""
    notes = objects.meta(snapshot.workload or {}).get("annotations") or {}
    known = memory.parse(notes.get(naming.STEERING, ""))
    if not known.reason:
        return []
    allowed = notes.get(naming.ALLOWED_FLAVORS)
    pools = "all pools of its queue" if allowed is None else allowed or "no pool now"
    moved = f", moved {pluralize(known.moves, 'time')}" if known.moves else ""
    return [f"may have {pools}{moved}: {known.reason}"]


def evicted(snapshot: Snapshot) -> list[str]:
    """Return how often Kueue evicted it, by reason."""
    stats = objects.status(snapshot.workload).get("schedulingStats") or {}
    return [
        f"evicted {_format_count(entry)}: {_eviction_reason(entry)}"
        for entry in stats.get("evictions") or []
    ]


def _eviction_reason(entry: Json) -> str:
    reason = {
        "Preempted": "another run preempted it",
        "PodsReadyTimeout": "its pods were not all ready in time",
        "AdmissionCheck": "no nodes were found for it",
        "ClusterQueueStopped": "its queue was drained",
        "LocalQueueStopped": "its queue was drained",
        "NodeFailures": "a node was lost",
        "Deactivated": "it was deactivated",
    }.get(str(entry["reason"]), str(entry["reason"]))
    cause = entry.get("underlyingCause")
    return f"{reason} ({cause})" if cause else reason


def _format_count(entry: Json) -> str:
    count = int(entry.get("count", 1))
    return "once" if count == 1 else f"{count} times"


def evicted_by_node(snapshot: Snapshot) -> list[str]:
    """Return pods that a kubelet evicted because its node was short of memory, disk or PIDs, within the last hour.

    A restart of the gang deletes the pods: events are matched by the pod's name, which begins with the gang's.
    """
    own = f"{objects.name(snapshot.run)}-"
    found = [
        event
        for event in snapshot.events
        if event.get("reason") == "Evicted"
        and event["involvedObject"].get("kind") == "Pod"
        and str(event["involvedObject"].get("name")).startswith(own)
    ]
    found.sort(key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
    return [
        f"pod/{event['involvedObject']['name']} was evicted by its node"
        f" {snapshot.ago(event.get('lastTimestamp') or event.get('eventTime'))} ago: {event.get('message')}"
        for event in found[-3:]
    ]


def restarted(snapshot: Snapshot) -> list[str]:
    """Return the restarts in place: after preemptions, and after failures, which count."""
    total = terminal_states.restarts(snapshot)
    if not total:
        return []
    failed = int(objects.status(snapshot.run).get("restartsCountTowardsMax") or 0)
    most = ((snapshot.run.get("spec") or {}).get("failurePolicy") or {}).get("maxRestarts")
    kept = total - failed
    noticed = f"{kept} after a notice (exit code {contract.EXIT_PREEMPTED})"
    failures = f"{failed} of {most} allowed after failures"
    parts = [text for text, n in ((noticed, kept), (failures, failed)) if n]
    return [f"restarted {pluralize(total, 'time')}: {', '.join(parts)}"]


def unsaved(snapshot: Snapshot) -> list[str]:
    """Return that the program's checkpoint folder is empty, as its first node has reported last."""
    lines = (line for log in snapshot.logs for line in log.lines)
    found = [line for line in lines if line.text.startswith(NO_CHECKPOINT_LINE)]
    last = max(found, key=lambda line: line.time, default=None)
    written = snapshot.vitals and snapshot.vitals.checkpoint_write_s is not None
    return [] if last is None or written else [logs.sanitize(last.text.removeprefix("launch: "))]


def restarted_in_pod(snapshot: Snapshot) -> list[str]:
    """Return how often the ranks of a gang of one pod started again in it, which no object records."""
    count = int(snapshot.vitals.restarts_in_pod) if snapshot.vitals else 0
    if not count:
        return []
    return [
        f"its ranks started again in their pod {pluralize(count, 'time')}, after failures that count"
        " against maxRestarts"
    ]
