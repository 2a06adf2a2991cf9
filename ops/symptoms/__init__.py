"""The table of symptoms: the first that a snapshot shows is why a run is where it is."""

from __future__ import annotations

from typing import Final

from ops.snapshot import Snapshot
from ops.symptoms import ended, notes, pods, queue, scarcity, waiting
from ops.verdict import Note, Symptom, Verdict

SYMPTOMS: Final[tuple[Symptom, ...]] = (
    ended.finished,
    ended.bad_configuration,
    ended.out_of_memory,
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
    scarcity.no_place,
    waiting.behind,
    waiting.queued,
    pods.refused,
    pods.image,
    pods.setup,
    pods.unschedulable,
    pods.restarting,
    pods.running,
    pods.starting,
)
"""In the order of asking: ends first, then from the queue inwards; what explains more comes before."""

NOTES: Final[tuple[Note, ...]] = (notes.preempted_by, notes.sent_back, notes.restarted)


def explain(snapshot: Snapshot) -> Verdict:
    """Why the run is where it is."""
    found = (symptom(snapshot) for symptom in SYMPTOMS)
    return next((verdict for verdict in found if verdict), None) or pods.unknown(snapshot)


def history(snapshot: Snapshot) -> list[str]:
    """What happened to it before."""
    return [line for note in NOTES for line in note(snapshot)]
