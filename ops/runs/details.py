"""Everything that `run show` prints about one run, and its form as JSON."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from infra.domain import naming
from infra.observability import series
from ops import collect, groups, metrics, objects
from ops.cluster import Cluster
from ops.logs import Line, Log
from ops.metrics import MetricsUnknownError, PrometheusClient
from ops.objects import Json
from ops.promql import Expression, select
from ops.runs import log_progress, progress, record
from ops.runs.listing import RunSummary, summary_of
from ops.runs.progress import NO_PROGRESS, Progress
from ops.runs.record import RunRecordView
from ops.snapshot import Snapshot
from ops.symptoms import history

ON_THE_VOLUME: Final = "on the team's volume"


@dataclass(frozen=True, kw_only=True)
class PodRow:
    """One pod of a run; empty texts where something is not known."""

    name: str
    group: int | None
    """Replica group that it belongs to; None: the run has none."""
    rank: int | None
    """Of its node, from 0."""
    node: str
    pool: str
    instance_type: str
    capacity: str
    """`spot`, `on-demand`, ..."""
    phase: str
    ready: bool
    restarts: int


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """Where the checkpoints of a run are, and the newest one as far as its metrics say."""

    place: str
    step: int | None = None
    saved: str = ""
    """RFC 3339."""


@dataclass(frozen=True, kw_only=True)
class Details:
    summary: RunSummary
    reference: str
    """kubectl arguments for its objects."""
    record: RunRecordView
    pods: Sequence[PodRow]
    checkpoints: Checkpoints
    interruptions: Sequence[str]
    hidden: Sequence[str]
    gaps: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """Return the summary's fields, and configuration, lineage, pods and so on below their names."""
        return self.summary.to_json() | {
            "configuration": dict(self.record.configuration),
            "lineage": dict(self.record.lineage),
            "pods": [dataclasses.asdict(one) for one in self.pods],
            "checkpoints": dataclasses.asdict(self.checkpoints),
            "interruptions": list(self.interruptions),
            "seconds_left": self.summary.progress.seconds_left,
            "hidden": list(self.hidden),
            "gaps": list(self.gaps),
        }


def read_details(
    cluster: Cluster, run: Json, prometheus: PrometheusClient, now: dt.datetime
) -> Details:
    return details_of(cluster, collect.take_snapshot(cluster, run, now, prometheus), prometheus)


def details_of(cluster: Cluster, taken: Snapshot, prometheus: PrometheusClient) -> Details:
    """Read what a snapshot of a run lacks: its record, progress and checkpoints."""
    recorded = record.read_record(cluster, taken.run)
    at, checkpoint = _measured(prometheus, taken)
    at = progress.newer(at, progress.from_log(leading_lines(taken)))
    at = progress.newer(at, Progress(steps=recorded.planned_steps))
    place = recorded.store or f"{_path(recorded, taken.run_id)} {ON_THE_VOLUME}"
    gaps = [gap for gap in (recorded.gap, *taken.gaps) if gap]
    return Details(
        summary=summary_of(taken, at),
        reference=objects.reference(taken.run),
        record=recorded,
        pods=pod_rows(taken.pods, taken.nodes),
        checkpoints=dataclasses.replace(checkpoint, place=place),
        interruptions=history(taken),
        hidden=sorted(taken.hidden),
        gaps=gaps,
    )


def _path(recorded: RunRecordView, run_id: str) -> str:
    return str(recorded.record.get("checkpoint_path") or f"/checkpoints/{run_id}/checkpoints")


def _measured(prometheus: PrometheusClient, taken: Snapshot) -> tuple[Progress, Checkpoints]:
    """Return progress and newest checkpoint by the run's metrics; `take_snapshot` says why not."""
    nothing = NO_PROGRESS, Checkpoints(place="")
    if not taken.pods or taken.vitals is None:
        return nothing

    def largest(one: series.Series) -> Sequence[metrics.Sample]:
        return prometheus.query(Expression("max({})", select(one, run_id=taken.run_id)))

    try:
        found = progress.from_prometheus(prometheus, taken.namespace).get(taken.run_id, NO_PROGRESS)
        steps = largest(series.CHECKPOINT_STEP)
        times = largest(series.CHECKPOINT_COMMIT_TIME)
    except MetricsUnknownError:
        return nothing
    step = next((int(one.value) for one in steps), None)
    saved = next((one.value for one in times if one.value > 0), None)
    stamp = dt.datetime.fromtimestamp(saved, dt.UTC) if saved else None
    return found, Checkpoints(
        place="", step=step, saved=stamp.strftime("%Y-%m-%dT%H:%M:%SZ") if stamp else ""
    )


def leading_lines(taken: Snapshot) -> Sequence[Line]:
    """Return the newest log of the leading pod's containers."""
    first = objects.name(leading_pod(taken) or {})
    mine = [log for log in taken.logs if log.pod == first and not log.previous]
    newest: Log | None = max(
        mine, key=lambda log: log.lines[-1].time if log.lines else "", default=None
    )
    return newest.lines if newest else ()


def leading_pod(taken: Snapshot) -> Json | None:
    """Return the pod whose log has the run's progress; None if none has started."""
    return log_progress.leading_pods(taken.pods).get(taken.run_id)


def pod_rows(pods: Sequence[Json], nodes: Sequence[Json]) -> list[PodRow]:
    """Return the pods in the order of their ranks. Pure.

    Pool and capacity are those of the node; for a caller who may not read nodes, those that the pod's node
    selector names, which Kueue sets.
    """
    by_name = {objects.name(node): node for node in nodes}
    rows = [_pod_row(pod, by_name.get(str(pod["spec"].get("nodeName") or ""))) for pod in pods]
    return sorted(rows, key=lambda row: (_or_first(row.group), _or_first(row.rank), row.name))


def _or_first(number: int | None) -> int:
    return -1 if number is None else number


def _pod_row(pod: Json, node: Json | None) -> PodRow:
    selector = pod["spec"].get("nodeSelector") or {}

    def labelled(key: str) -> str:
        return (objects.label(node, key) if node else "") or str(selector.get(key, ""))

    status = objects.status(pod)
    index = objects.label(pod, naming.JOB_INDEX)
    return PodRow(
        name=objects.name(pod),
        group=groups.number_of(pod),
        rank=int(index) if index.isdigit() else None,
        node=str(pod["spec"].get("nodeName") or ""),
        pool=labelled(naming.POOL),
        instance_type=labelled(naming.INSTANCE_TYPE),
        capacity=labelled(naming.CAPACITY),
        phase=str(status.get("phase") or ""),
        ready=objects.condition_is_true(pod, "Ready"),
        restarts=sum(int(one.get("restartCount") or 0) for one in objects.containers(pod)),
    )
