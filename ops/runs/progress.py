"""Progress of runs: from Prometheus for all runs at once, or from the log of one."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from infra.observability import series
from ops import concurrent, objects
from ops.cluster import ClusterError
from ops.logs import Line
from ops.metrics import DEADLINE_S, MetricsUnknownError, PrometheusClient, Sample
from ops.promql import Expression, select
from trainyard.contract import METRIC_LINE

_STEP_LINE: Final = re.compile(r"\bstep (\d+)(?:/(\d+))?\b")
"""A line of progress of the trainer: `step 120/1000  loss 5.4 ...`."""
_LOSS: Final = re.compile(r"\bloss ([-+0-9.e]+)")
_TOKENS: Final = re.compile(r"([0-9][0-9,]*) tokens/s")
_MFU: Final = re.compile(r"\bMFU ([0-9.]+) %")
_RATE_POINTS: Final = 20
"""Last lines with a step from which the speed is measured."""

_SERIES: Final[Mapping[str, series.Series]] = {
    "step": series.STEP,
    "steps": series.PLANNED_STEPS,
    "loss": series.LOSS,
    "tokens_per_s": series.TOKENS_PER_SECOND,
    "save_s": series.CHECKPOINT_WRITE_SECONDS,
}
"""Queried series by the field of Progress."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a run is; None where that is not known."""

    step: int | None = None
    steps: int | None = None
    """Planned steps."""
    loss: float | None = None
    tokens_per_s: float | None = None
    steps_per_s: float | None = None
    """Of the time spent on steps, over the last minutes."""
    save_s: float | None = None
    """Seconds that its last checkpoint took to write."""

    @property
    def seconds_left(self) -> float | None:
        """Time that the remaining steps take at this speed; None where that is not known."""
        if self.step is None or not self.steps or not self.steps_per_s:
            return None
        return max(0, self.steps - self.step) / self.steps_per_s


NO_PROGRESS: Final = Progress()


@dataclass(frozen=True, kw_only=True)
class Point:
    """What is known of a run at one step, by a line of its log or its metrics; None where nothing is."""

    time: float
    """Unix seconds; 0: unknown."""
    step: int
    loss: float | None = None
    tokens_per_s: float | None = None
    mfu: float | None = None
    """0 to 1."""
    steps: int | None = None
    """Planned steps."""


def from_prometheus(
    prometheus: PrometheusClient, namespace: str | None = None
) -> dict[str, Progress]:
    """Return the progress of all running runs by run id, in as many queries as there are series.

    Raises MetricsUnknownError.
    """
    where = {"namespace": namespace} if namespace else {}
    questions = {
        name: functools.partial(
            prometheus.query, Expression("max by (run_id) ({})", select(one, **where))
        )
        for name, one in _SERIES.items()
    }
    # Both rates of a run that has just started are too low, by the same factor.
    made, spent = (
        Expression("sum by (run_id) (rate({}[5m]))", select(one, **where))
        for one in (series.STEPS, series.STEP_SECONDS)
    )
    questions["steps_per_s"] = functools.partial(
        prometheus.query, Expression("{} / {}", made, spent)
    )
    came = concurrent.gather_with_deadline(questions, DEADLINE_S)
    answers = {name: found for name, found in came.items() if not isinstance(found, ClusterError)}
    if not answers:
        error = next((str(found) for found in came.values()), f"{prometheus.place}: no answer")
        raise MetricsUnknownError(error)
    return parse(answers)


def parse(answers: Mapping[str, Sequence[Sample]]) -> dict[str, Progress]:
    """Build Progress by run id from query results by field. Pure."""
    values: dict[str, dict[str, float]] = {}
    for name, samples in answers.items():
        for sample in samples:
            if (run_id := sample.labels.get("run_id")) and math.isfinite(sample.value):
                values.setdefault(run_id, {})[name] = sample.value
    return {run_id: _progress(found) for run_id, found in values.items()}


def _progress(values: Mapping[str, float]) -> Progress:
    def whole(name: str) -> int | None:
        return int(values[name]) if name in values else None

    return Progress(
        step=whole("step"),
        # Programs that do not name their steps report 0.
        steps=whole("steps") or None,
        loss=values.get("loss"),
        tokens_per_s=values.get("tokens_per_s"),
        steps_per_s=values.get("steps_per_s"),
        save_s=values.get("save_s"),
    )


def from_log(lines: Sequence[Line]) -> Progress:
    """Return the progress by the last lines of a rank 0's log that have it. Pure."""
    points = points_from_log(lines)
    found = Progress()
    for point in reversed(points):
        older = Progress(
            step=point.step,
            steps=point.steps,
            loss=point.loss,
            tokens_per_s=point.tokens_per_s,
        )
        found = newer(found, older)
        if None not in (found.step, found.loss, found.steps, found.tokens_per_s):
            break
    return newer(found, Progress(steps_per_s=_speed(points[-_RATE_POINTS:])))


def _speed(points: Sequence[Point]) -> float | None:
    timed = [(one.time, one.step) for one in points if one.time]
    if len(timed) < 2:
        return None
    (start, first), (end, last) = timed[0], timed[-1]
    return (last - first) / (end - start) if end > start and last > first else None


def points_from_log(lines: Sequence[Line]) -> list[Point]:
    return [point for line in lines if (point := _point(line))]


def newer(latest: Progress, older: Progress) -> Progress:
    """Return the latest values, and the older ones where there is no newer."""
    mine = {
        field.name: value
        for field in dataclasses.fields(latest)
        if (value := getattr(latest, field.name)) is not None
    }
    return dataclasses.replace(older, **mine)


def _point(line: Line) -> Point | None:
    _, marker, rest = line.text.partition(METRIC_LINE)
    if marker:
        return _metric_point(objects.unix(line.time) or 0.0, rest)
    step = _STEP_LINE.search(line.text)
    if step is None or "held-out" in line.text:
        return None
    percent = _number(_MFU.search(line.text))
    return Point(
        time=objects.unix(line.time) or 0.0,
        step=int(step[1]),
        steps=int(step[2]) if step[2] else None,
        loss=_number(_LOSS.search(line.text)),
        tokens_per_s=_number(_TOKENS.search(line.text)),
        mfu=None if percent is None else percent / 100,
    )


def _metric_point(time: float, text: str) -> Point | None:
    try:
        values = json.loads(text)
        step = values.get("step")
    except (ValueError, AttributeError):
        return None

    def number(name: str) -> float | None:
        value = values.get(name)
        return float(value) if isinstance(value, int | float) else None

    if not isinstance(step, int):
        return None
    return Point(
        time=time,
        step=step,
        loss=number("loss"),
        tokens_per_s=number("tokens_per_s"),
        mfu=number("mfu"),
    )


def _number(found: re.Match[str] | None) -> float | None:
    try:
        return float(found[1].replace(",", "")) if found else None
    except ValueError:
        return None
