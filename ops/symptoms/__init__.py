"""The table of symptoms: the first that a snapshot shows is why a run is where it is, or why it is slow."""

from __future__ import annotations

from typing import Final

from ops.snapshot import Snapshot
from ops.symptoms import (
    ended,
    gpus,
    health,
    notes,
    placing,
    pods,
    queue,
    scarcity,
    told,
    waiting,
)
from ops.verdict import Note, Symptom, Verdict

SYMPTOMS: Final[tuple[Symptom, ...]] = (
    ended.finished,
    ended.bad_configuration,
    ended.out_of_memory,
    gpus.broke_it,
    told.by_logs,
    gpus.driver,
    ended.failed,
    ended.leaving,
    ended.stopped,
    queue.no_queue,
    queue.queue_missing,
    queue.held,
    queue.inactive,
    queue.unseen,
    queue.closed,
    waiting.backoff,
    waiting.waiting_for_nodes,
    waiting.preempting,
    scarcity.no_flavor,
    scarcity.too_big,
    scarcity.cost_cap,
    scarcity.quota_exhausted,
    gpus.not_visible,
    scarcity.no_place,
    waiting.behind,
    waiting.queued,
    pods.refused,
    pods.image,
    pods.setup,
    placing.partial_gang,
    placing.missing_toleration,
    placing.strict_affinity,
    placing.no_gpu_capacity,
    placing.unschedulable,
    gpus.cpu_node,
    pods.restarting,
    *health.CHECKS,
    pods.running,
    pods.starting,
)
"""In the order of asking: ends first, then from the queue inwards; what explains more comes before."""

NOTES: Final[tuple[Note, ...]] = (
    notes.preempted_by,
    notes.sent_back,
    notes.restarted,
    told.lines_seen,
)


def explain(snapshot: Snapshot) -> Verdict:
    """Why the run is where it is."""
    found = (symptom(snapshot) for symptom in SYMPTOMS)
    return next((verdict for verdict in found if verdict), None) or pods.unknown(snapshot)


def history(snapshot: Snapshot) -> list[str]:
    """What happened to it before."""
    return [line for note in NOTES for line in note(snapshot)]
