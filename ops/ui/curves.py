"""What a run measured over time: by the metrics of all its attempts, else by the log of its leading rank."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from infra.observability import series
from ops import concurrent
from ops.cluster import ClusterError
from ops.ledger.model import Phase
from ops.ledger.observe import COUNTERS, phase_of
from ops.logs import Line
from ops.metrics import DEADLINE_S, History, MetricsUnknownError, PrometheusClient
from ops.promql import Expression, select
from ops.runs import progress
from ops.runs.progress import Point

POINTS_MAX: Final = 400
"""Points of a curve."""
_SCRAPE_S: Final = 5.0
"""Shortest distance of points."""

_CURVES: Final[Mapping[str, series.Series]] = {
    "loss": series.LOSS,
    "tokens_per_s": series.TOKENS_PER_SECOND,
    "mfu": series.MFU,
    "checkpoint": series.CHECKPOINT_STEP,
}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A run over time."""

    moments: Sequence[Point] = ()
    phases: Sequence[Phase] = ()
    """One per attempt that made a step."""
    saves: Sequence[tuple[float, int]] = ()
    """When a new checkpoint was seen, and its step."""
    gap: str = ""
    """What is missing, and why."""

    def values(self) -> dict[str, list[float | None]]:
        """Return lists of equal length for a chart, by name."""
        names = [field.name for field in dataclasses.fields(Point)]
        return {name: [getattr(one, name) for one in self.moments] for name in names}


def from_prometheus(
    prometheus: PrometheusClient, run_id: str, namespace: str, start: float, end: float
) -> Measured:
    """Return what a run measured between two times. Raises MetricsUnknownError."""
    step_s = max(_SCRAPE_S, (end - start) / POINTS_MAX)
    questions = {
        name: functools.partial(
            prometheus.range,
            Expression("max by (run_id) ({})", select(one, run_id=run_id, namespace=namespace)),
            *(start, end, step_s),
        )
        for name, one in {**_CURVES, **COUNTERS}.items()
    }
    came = concurrent.gather_with_deadline(questions, DEADLINE_S)
    answers = {name: found for name, found in came.items() if not isinstance(found, ClusterError)}
    if "step" not in answers:
        error = next((str(one) for one in came.values() if isinstance(one, ClusterError)), "")
        raise MetricsUnknownError(error or f"{prometheus.place}: no answer in time")
    return parse(run_id, answers)


def parse(run_id: str, answers: Mapping[str, Sequence[History]]) -> Measured:
    """Build the measurements of a run from the results of its queries. Pure."""
    by_time: dict[float, dict[str, float]] = {}
    for name, found in answers.items():
        for one in found[:1]:
            for time, value in one.points:
                by_time.setdefault(time, {})[name] = value
    rows = sorted(by_time.items())
    moments = [
        Point(
            time=time,
            step=int(row["step"]),
            loss=row.get("loss"),
            tokens_per_s=row.get("tokens_per_s"),
            mfu=row.get("mfu") or None,
        )
        for time, row in rows
        if row.get("step")
    ]
    return Measured(moments=_distinct(moments), phases=_phases(run_id, rows), saves=_saves(rows))


def _distinct(moments: Sequence[Point]) -> list[Point]:
    """Drop moments that repeat the step before them."""
    return [
        one for index, one in enumerate(moments) if not index or one.step != moments[index - 1].step
    ]


def _phases(run_id: str, rows: Sequence[tuple[float, Mapping[str, float]]]) -> list[Phase]:
    """Return one phase per attempt: by the counters of the moment of its last step."""
    last: dict[int, tuple[float, Mapping[str, float]]] = {}
    for time, row in rows:
        attempt = max(1, int(row.get("attempt", 1)))
        before = last.get(attempt)
        if not row.get("steps") or "step_s" not in row:
            continue
        if before is None or row["steps"] > before[1]["steps"]:
            last[attempt] = (time, row)
    return [phase_of(run_id, attempt, row, time) for attempt, (time, row) in sorted(last.items())]


def _saves(rows: Sequence[tuple[float, Mapping[str, float]]]) -> list[tuple[float, int]]:
    found: list[tuple[float, int]] = []
    for time, row in rows:
        step = int(row.get("checkpoint", 0))
        if step and step not in {known for _, known in found[-3:]}:
            found.append((time, step))
    return found


def from_log(lines: Sequence[Line], why: str) -> Measured:
    """Return what a log says. Pure. `why`: why there are no metrics."""
    moments = [one for one in progress.points_from_log(lines) if one.time]
    gap = f"{why}; " if why else ""
    if not moments:
        return Measured(gap=f"{gap}no step was measured yet")
    return Measured(
        moments=_distinct(moments),
        gap=f"{gap}the curves are the end of rank 0's log, of its last attempt only",
    )
