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
from ops import concurrent
from ops.cluster import ClusterError
from ops.logs import Line
from ops.metrics import DEADLINE_S, MetricsUnknownError, PrometheusClient, Sample
from training.spec import METRIC_LINE

_STEP_LINE: Final = re.compile(r"\bstep (\d+)(?:/(\d+))?\b")
"""A line of progress of the trainer: `step 120/1000  loss 5.4 ...`."""
_LOSS: Final = re.compile(r"\bloss ([-+0-9.e]+)")

_SERIES: Final[Mapping[str, series.Series]] = {
    "step": series.STEP,
    "steps": series.PLANNED_STEPS,
    "attempt": series.ATTEMPT,
    "loss": series.LOSS,
    "tokens_per_s": series.TOKENS_PER_SECOND,
}
"""Queried series by the field of Progress."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a run is; None where that is not known."""

    step: int | None = None
    steps: int | None = None
    """Planned steps."""
    attempt: int | None = None
    loss: float | None = None
    tokens_per_s: float | None = None


def from_prometheus(
    prometheus: PrometheusClient, namespace: str | None = None
) -> dict[str, Progress]:
    """Return the progress of all running runs by run id, in as many queries as there are series.

    Raises MetricsUnknownError.
    """
    where = f'{{namespace="{namespace}"}}' if namespace else ""
    questions = {
        name: functools.partial(prometheus.query, f"max by (run_id) ({one}{where})")
        for name, one in _SERIES.items()
    }
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
        attempt=whole("attempt"),
        loss=values.get("loss"),
        tokens_per_s=values.get("tokens_per_s"),
    )


def from_log(lines: Sequence[Line]) -> Progress:
    """Return the progress by the last lines of a rank 0's log that have it. Pure."""
    found = Progress()
    for line in reversed(lines):
        found = newer(found, _of_line(line.text))
        if found.step is not None and found.loss is not None and found.steps is not None:
            break
    return found


def newer(latest: Progress, older: Progress) -> Progress:
    """Return the latest values, and the older ones where there is no newer."""
    mine = {
        field.name: value
        for field in dataclasses.fields(latest)
        if (value := getattr(latest, field.name)) is not None
    }
    return dataclasses.replace(older, **mine)


def _of_line(text: str) -> Progress:
    _, marker, rest = text.partition(METRIC_LINE)
    if marker:
        return _of_metric_line(rest)
    step = _STEP_LINE.search(text)
    if step is None or "held-out" in text:
        return Progress()
    loss = _LOSS.search(text)
    return Progress(
        step=int(step[1]),
        steps=int(step[2]) if step[2] else None,
        loss=_number(loss[1]) if loss else None,
    )


def _of_metric_line(text: str) -> Progress:
    try:
        values = json.loads(text)
        step = values.get("step")
        loss = values.get("loss")
    except (ValueError, AttributeError):
        return Progress()
    return Progress(
        step=step if isinstance(step, int) else None,
        loss=float(loss) if isinstance(loss, int | float) else None,
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
