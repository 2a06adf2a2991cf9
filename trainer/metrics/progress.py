"""Progress of rank 0: lines for people on standard error, and lines with metrics for programs on standard output.

trainyard-metric {"step": 40, "loss": 3.2, ...}
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Final

from trainyard.contract import METRIC_LINE

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
"""Metrics in the lines for programs: those of metrics.jsonl, and the held-out loss."""


class ProgressDisplay:
    """Prints progress; silent unless `enabled`."""

    def __init__(
        self,
        steps: int,
        first_step: int,
        every_seconds: float,
        *,
        enabled: bool,
        metric_lines_every: int | None = None,
    ) -> None:
        """Show a run of `steps` that goes on after `first_step`.

        `every_seconds`: between two lines for people; `metric_lines_every`: steps between two lines for programs,
        None for none of them. The last step always has both.
        """
        self._steps = steps
        self._first = first_step
        self._every = every_seconds
        self._enabled = enabled
        self._metrics_every = metric_lines_every if enabled else None
        self._begun = self._shown = time.monotonic()
        self._tokens = 0

    def step(
        self, step: int, tokens: int, samples: int, measured: Mapping[str, float | None]
    ) -> None:
        """Show a completed step; `measured` has the other METRICS by name."""
        last = step == self._steps
        self._tokens += tokens
        if self._metrics_every and (step % self._metrics_every == 0 or last):
            seconds = measured["step_time_s"] or 1e-9
            rates = {"tokens_per_s": tokens / seconds, "samples_per_s": samples / seconds}
            values = {name: {**measured, **rates}.get(name) for name in METRICS}
            _print_metrics(step, {name: one for name, one in values.items() if one is not None})
        now = time.monotonic()
        if not self._enabled or not (now - self._shown >= self._every or last):
            return
        self._shown, taken = now, now - self._begun
        rate = self._tokens / max(taken, 1e-9)
        text = f"loss {measured['loss']:.3f}  {rate:,.0f} tokens/s"
        if mfu := measured["mfu"]:
            text += f"  MFU {100 * mfu:.1f} %"
        left = taken / (step - self._first) * (self._steps - step)
        self.log(f"step {step}/{self._steps}  {text}  {left:.0f} s left")

    def evaluated(self, step: int, loss: float, baseline: float) -> None:
        """Show a held-out loss, and that of a unigram model."""
        if self._metrics_every:
            _print_metrics(step, {EVALUATION_LOSS: loss})
        self.log(f"step {step}  held-out loss {loss:.3f} (unigram {baseline:.3f})")

    def log(self, text: str) -> None:
        if self._enabled:
            print(text, file=sys.stderr, flush=True)


def _print_metrics(step: int, values: Mapping[str, float]) -> None:
    print(f"{METRIC_LINE}{json.dumps({'step': step, **values})}", file=sys.stdout, flush=True)
