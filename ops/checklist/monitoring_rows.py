"""Rows on who watches: metrics of all three layers, and alerts on what goes wrong first."""

from __future__ import annotations

from typing import Final

from infra.observability.alerts import ALERTS
from ops.checklist.prometheus_inventory import GPU, LAYERS, TRAINING
from ops.checklist.snapshot import Notes, Observed, some
from ops.collect import NODES
from ops.ready.capacity import gpus
from ops.ready.outcome import Row

NEEDED: Final = (
    "LowGpuUtilization",
    "PodRestartLoop",
    "TrainingPodPending",
    "CheckpointSlow",
    "CheckpointFailed",
)
"""What the checklist names."""
_REMEDY: Final = (
    "name a Prometheus with --prometheus URL or PROMETHEUS_URL; docs/observability.md says how a stack"
    " gets one"
)


def observability(observed: Observed) -> Row:
    """Prometheus has series of GPUs, of training and of Kubernetes."""
    notes = Notes(area="Observability", check="GPU, training, and Kubernetes metrics are visible")
    watched = observed.watched
    if watched.counts is None:
        notes.doubts(watched.gap, _REMEDY)
        return notes.row()
    for layer in LAYERS:
        number = watched.counts.get(layer, 0)
        if number:
            notes.good.append(f"{layer}: {number} series")
        elif layer == TRAINING and not observed.runs():
            notes.doubts(f"{layer}: no run has trained since a day", "launch a run")
        elif layer == GPU and not any(gpus(node) for node in observed.cluster(NODES)):
            notes.doubts(f"{layer}: there is no GPU node now")
        else:
            notes.fails(
                f"{layer}: {watched.place} has no series of it",
                "see its page of targets: which are down, and why?",
            )
    return notes.row()


def alerts(observed: Observed) -> Row:
    """Prometheus has loaded the alerts."""
    notes = Notes(
        area="Alerts",
        check="Alerts exist for low utilization, restarts, pending pods, and checkpoint failures",
    )
    watched = observed.watched
    if watched.counts is None:
        notes.doubts(watched.gap, _REMEDY)
        return notes.row()
    known = [alert.name for alert in ALERTS]
    missing = [name for name in dict.fromkeys([*NEEDED, *known]) if name not in watched.alerts]
    if missing:
        notes.fails(
            f"{watched.place} has not loaded {some(missing)}",
            "`pulumi up` makes the rules; does Prometheus select them?",
        )
    else:
        notes.good.append(f"{len(known)} alerts are loaded, {some(NEEDED)} among them")
    if firing := [name for name in watched.firing if name in known]:
        notes.good.append(f"firing now: {some(firing)}; docs/runbooks says what each means")
    return notes.row()
