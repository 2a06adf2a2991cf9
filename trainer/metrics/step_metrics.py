"""Metrics of a step, for the log, the display and Prometheus.

Costs microseconds per step; scrapes and MLflow run in other threads and processes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from trainer.metrics import flops
from trainer.metrics.progress import ProgressDisplay
from trainyard.run_logs import MetricsLog, StepMetrics, Totals


@dataclass(kw_only=True)
class StepMeter:
    """Turns measurements of steps into metrics; the log and display write on the leader only."""

    log: MetricsLog
    display: ProgressDisplay
    attempt: int
    samples: int
    """Samples per step over all ranks."""
    sequence_length: int
    token_flops: float
    devices: int
    device_flops: float | None
    """Peak FLOP/s of one device; None if unknown."""
    totals: Totals = field(default_factory=Totals)
    _stall_s: float = 0.0

    def add_stall(self, seconds: float) -> None:
        """Add time that a save stalled training; reported with the next step."""
        self._stall_s += seconds

    def step(self, *, step_time_s: float, **measured: Any) -> None:
        """Record a step; `measured` are the remaining fields of StepMetrics."""
        tokens = self.samples * self.sequence_length
        tokens_per_s = tokens / step_time_s
        metrics = StepMetrics(
            tokens=tokens,
            step_time_s=step_time_s,
            attempt=self.attempt,
            time=time.time(),
            tokens_per_s=tokens_per_s,
            samples_per_s=self.samples / step_time_s,
            mfu=flops.model_flops_utilization(
                tokens_per_s, self.token_flops, self.devices, self.device_flops
            ),
            checkpoint_stall_s=self._stall_s,
            **measured,
        )
        self._stall_s = 0.0
        self.log.append(metrics)
        self.totals.add(metrics, self.samples)
        self.display.step(metrics)
