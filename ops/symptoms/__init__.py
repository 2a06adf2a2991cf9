"""Ordered symptom checks: the first that matches a snapshot explains why a run waits, fails or is slow."""

from __future__ import annotations

from typing import Final

from ops import groups
from ops.snapshot import Note, Snapshot, Symptom, Verdict
from ops.symptoms import (
    culprits,
    gpus,
    health,
    interruptions,
    log_causes,
    lost_nodes,
    pending,
    pods,
    preparation,
    queue,
    results,
    run_groups,
    scarcity,
    scheduling,
    terminal_states,
)

SYMPTOMS: Final[tuple[Symptom, ...]] = (
    terminal_states.finished,
    preparation.failed,
    lost_nodes.lost_node,
    terminal_states.bad_configuration,
    culprits.caused_failure,
    terminal_states.out_of_memory,
    gpus.caused_failure,
    log_causes.matching_cause,
    gpus.driver_unusable,
    *terminal_states.ENDED,
    *queue.CHECKS,
    *pending.ADMITTING,
    *scarcity.CHECKS,
    gpus.not_visible,
    scarcity.no_nodes,
    pending.behind_others,
    pending.queued,
    *pods.BEFORE_START,
    *scheduling.CHECKS,
    gpus.cpu_node,
    preparation.running,
    pods.restarting,
    run_groups.joining,
    *health.CHECKS,
    pods.running,
    pods.starting,
)
"""Checked in this order: terminal states, then from the queue to the pods; specific causes first."""

GANG_NOTES: Final[tuple[Note, ...]] = (
    interruptions.preempted_by,
    interruptions.evicted,
    interruptions.evicted_by_node,
    interruptions.steered,
    interruptions.restarted,
)
RUN_NOTES: Final[tuple[Note, ...]] = (
    culprits.earlier,
    interruptions.unsaved,
    interruptions.restarted_in_pod,
    log_causes.counted_matches,
    results.not_copied,
)
"""What is recorded of a run, whatever its groups."""


def explain(snapshot: Snapshot) -> Verdict:
    """Return the verdict of the first matching symptom; of a run with groups, what follows from each group's."""
    if groups.has_groups(snapshot.run):
        return run_groups.explain_groups(snapshot, explain)
    found = (symptom(snapshot) for symptom in SYMPTOMS)
    return next((verdict for verdict in found if verdict), None) or pods.unknown(snapshot)


def history(snapshot: Snapshot) -> list[str]:
    """Return lines about past preemptions, evictions, restarts and logged errors, of each group by itself."""
    if groups.has_groups(snapshot.run):
        of_groups = [
            f"group {groups.number_of(part.run)}: {line}"
            for part in snapshot.parts
            for note in GANG_NOTES
            for line in note(part)
        ]
        return [*of_groups, *(line for note in RUN_NOTES for line in note(snapshot))]
    return [line for note in (*GANG_NOTES, *RUN_NOTES) for line in note(snapshot)]
