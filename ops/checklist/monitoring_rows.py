"""Rows on who watches: metrics of all three layers, and alerts on what goes wrong first."""

from __future__ import annotations

from typing import Final

from infra.observability.alerts import ALERTS
from ops.checklist.prometheus_inventory import GPU, LAYER_QUERIES, TRAINING
from ops.checklist.snapshot import ChecklistSnapshot, RowBuilder, abbreviate
from ops.collect import NODES
from ops.ready.capacity import gpu_count
from ops.ready.outcome import Row

REQUIRED_ALERTS: Final = (
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


def observability(snapshot: ChecklistSnapshot) -> Row:
    """Prometheus has series of GPUs, of training and of Kubernetes."""
    notes = RowBuilder(
        area="Observability", check="GPU, training, and Kubernetes metrics are visible"
    )
    prometheus = snapshot.prometheus
    if prometheus.counts is None:
        notes.add_unknown(prometheus.gap, _REMEDY)
        return notes.row()
    for layer in LAYER_QUERIES:
        number = prometheus.counts.get(layer, 0)
        if number:
            notes.good.append(f"{layer}: {number} series")
        elif layer == TRAINING and not snapshot.runs():
            notes.add_unknown(f"{layer}: no run has trained since a day", "launch a run")
        elif layer == GPU and not any(gpu_count(node) for node in snapshot.cluster(NODES)):
            notes.add_unknown(f"{layer}: there is no GPU node now")
        else:
            notes.add_failure(
                f"{layer}: {prometheus.place} has no series of it",
                "see its page of targets: which are down, and why?",
            )
    return notes.row()


def alerts(snapshot: ChecklistSnapshot) -> Row:
    """Prometheus has loaded the alerts."""
    notes = RowBuilder(
        area="Alerts",
        check="Alerts exist for low utilization, restarts, pending pods, and checkpoint failures",
    )
    prometheus = snapshot.prometheus
    if prometheus.counts is None:
        notes.add_unknown(prometheus.gap, _REMEDY)
        return notes.row()
    known = [alert.name for alert in ALERTS]
    missing = [
        name for name in dict.fromkeys([*REQUIRED_ALERTS, *known]) if name not in prometheus.alerts
    ]
    if missing:
        notes.add_failure(
            f"{prometheus.place} has not loaded {abbreviate(missing)}",
            "`pulumi up` makes the rules; does Prometheus select them?",
        )
    else:
        notes.good.append(
            f"{len(known)} alerts are loaded, {abbreviate(REQUIRED_ALERTS)} among them"
        )
    if firing := [name for name in prometheus.firing if name in known]:
        notes.good.append(f"firing now: {abbreviate(firing)}; docs/runbooks says what each means")
    return notes.row()
