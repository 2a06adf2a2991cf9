"""Lines with metrics in the log of the leading rank, for programs that follow a run without its volume.

trainyard-metric {"step": 40, "loss": 3.2, ...}
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Final

from trainyard.contract import METRIC_LINE
from trainyard.run_logs import StepMetrics

EVALUATION_LOSS: Final = "eval_loss"
METRICS: Final = (
    "loss",
    EVALUATION_LOSS,
    "grad_norm",
    "tokens_per_s",
    "samples_per_s",
    "step_time_s",
    "mfu",
)
"""Metrics in these lines: those of metrics.jsonl, and the held-out loss."""


class MetricLines:
    """Prints a line every so many steps; silent without `every`."""

    def __init__(self, every: int | None, last_step: int) -> None:
        self._every = every
        self._last_step = last_step

    def step(self, metrics: StepMetrics) -> None:
        """Print the metrics of a step that is due, as the last one always is."""
        every, step = self._every, metrics.step
        if every and (step % every == 0 or step == self._last_step):
            values = {name: getattr(metrics, name, None) for name in METRICS}
            _print(step, {name: value for name, value in values.items() if value is not None})

    def evaluated(self, step: int, loss: float) -> None:
        """Print a held-out loss."""
        if self._every:
            _print(step, {EVALUATION_LOSS: loss})


def _print(step: int, values: Mapping[str, float]) -> None:
    print(f"{METRIC_LINE}{json.dumps({'step': step, **values})}", file=sys.stdout, flush=True)
