"""Progress of rank 0: a bar on a terminal, periodic lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from trainer.metrics.metric_lines import MetricLines
from trainyard.run_logs import StepMetrics


class ProgressDisplay:
    """Context manager that shows progress; silent unless `enabled`."""

    def __init__(
        self,
        steps: int,
        first_step: int,
        every_seconds: float,
        *,
        enabled: bool,
        metric_lines_every: int | None = None,
    ) -> None:
        self._steps = steps
        self._metric_lines = MetricLines(metric_lines_every if enabled else None, steps)
        self._first = first_step
        self._every = every_seconds
        self._enabled = enabled
        self._begun = self._shown = time.monotonic()
        self._tokens = 0
        self._bar: Progress | None = None
        if enabled and sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("step {task.completed}/{task.total}"),
                BarColumn(),
                TextColumn("{task.description}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )

    def __enter__(self) -> ProgressDisplay:
        if self._bar:
            self._bar.start()
            self._task = self._bar.add_task("", total=self._steps, completed=self._first)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar:
            self._bar.stop()

    def step(self, metrics: StepMetrics) -> None:
        """Show a completed step."""
        self._metric_lines.step(metrics)
        self._tokens += metrics.tokens
        now = time.monotonic()
        rate = self._tokens / max(now - self._begun, 1e-9)
        text = f"loss {metrics.loss:.3f}  {rate:,.0f} tokens/s"
        if metrics.mfu is not None:
            text += f"  MFU {100 * metrics.mfu:.1f} %"
        if self._bar:
            self._bar.update(self._task, completed=metrics.step, description=text)
        elif self._enabled and (now - self._shown >= self._every or metrics.step == self._steps):
            self._shown = now
            left = (now - self._begun) / (metrics.step - self._first)
            left *= self._steps - metrics.step
            self.log(f"step {metrics.step}/{self._steps}  {text}  {left:.0f} s left")

    def evaluated(self, step: int, loss: float, baseline: float) -> None:
        """Show a held-out loss, and that of a unigram model."""
        self._metric_lines.evaluated(step, loss)
        self.log(f"step {step}  held-out loss {loss:.3f} (unigram {baseline:.3f})")

    def log(self, text: str) -> None:
        """Print a line."""
        if self._bar:
            self._bar.console.print(text, highlight=False)
        elif self._enabled:
            print(text, file=sys.stderr, flush=True)
