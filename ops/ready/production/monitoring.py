"""Production checks on metrics and alerts."""

from __future__ import annotations

from typing import Final

from infra.domain import naming
from infra.observability.alerts import ALERTS
from ops import objects
from ops.collect import NODES, PODS
from ops.objects import Json
from ops.ready.pools import gpu_count
from ops.ready.production.snapshot import GPU, LAYER_QUERIES, TRAINING, StackSnapshot, abbreviate
from ops.ready.results import Check
from ops.runs import states

REQUIRED_ALERTS: Final = (
    "LowGpuUtilization",
    "PodRestartLoop",
    "TrainingPodPending",
    "CheckpointSlow",
    "CheckpointFailed",
)
"""Alerts that production requires."""
_REMEDY: Final = "pass a Prometheus with --prometheus URL or PROMETHEUS_URL; to install one: docs/observability.md"


def observability(snapshot: StackSnapshot) -> Check:
    notes = snapshot.row("Observability", "GPU, training, and Kubernetes metrics are visible")
    prometheus = snapshot.prometheus
    if prometheus.counts is None:
        notes.add_unknown(prometheus.gap, _REMEDY)
        return notes.row()
    for layer in LAYER_QUERIES:
        number = prometheus.counts.get(layer, 0)
        if number:
            notes.good.append(f"{layer}: {number} series")
        elif layer == TRAINING and not any(_scraped(run, snapshot) for run in snapshot.runs()):
            notes.add_unknown(
                f"{layer}: no run has trained within a day, or since {prometheus.place} began",
                "launch a run",
            )
        elif layer == GPU and not any(gpu_count(node) for node in snapshot.cluster(NODES)):
            notes.add_unknown(f"{layer}: there is no GPU node now")
        else:
            notes.add_failure(
                f"{layer}: {prometheus.place} has no such series",
                "check its targets page for targets that are down",
            )
    return notes.row()


def _scraped(run: Json, snapshot: StackSnapshot) -> bool:
    """Return whether a run could have been scraped: it has pods that run, or ended after the oldest scrape."""
    ending, since = states.ending_of(run), snapshot.prometheus.since
    ended = objects.time(ending.at) if ending else None
    if ended is None:
        return any(
            objects.status(pod).get("phase") == "Running"
            and objects.label(pod, naming.RUN_ID) == objects.label(run, naming.RUN_ID)
            for pod in snapshot.all_teams(PODS)
        )
    return since is None or ended.timestamp() > since


def alerts(snapshot: StackSnapshot) -> Check:
    notes = snapshot.row(
        "Alerts",
        "Alerts exist for low utilization, restarts, pending pods, and checkpoint failures",
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
            "`pulumi up` creates the rules; check that Prometheus selects them",
        )
    else:
        notes.good.append(
            f"{len(known)} alerts are loaded, including {abbreviate(REQUIRED_ALERTS)}"
        )
    if firing := [name for name in prometheus.firing if name in known]:
        notes.good.append(f"firing now: {abbreviate(firing)}; see docs/runbooks.md")
    return notes.row()
