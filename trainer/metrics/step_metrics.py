"""Metrics of a step. Costs microseconds per step; scrapes and MLflow run in other threads and processes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from trainer.config.settings import TrainerConfig
from trainer.metrics import flops
from trainer.parallel.build import Network
from trainer.parallel.world import World
from trainyard.run_logs import StepMetrics, Totals


@dataclass(kw_only=True)
class StepMeter:
    """Turns measurements of steps into metrics, and sums them for Prometheus."""

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

    def step(self, *, step_time_s: float, **measured: Any) -> StepMetrics:
        """Return the metrics of a step; `measured` are the remaining fields of StepMetrics."""
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
        self.totals.add(metrics, self.samples)
        return metrics


def make_step_meter(
    config: TrainerConfig, network: Network, world: World, attempt: int
) -> StepMeter:
    """Return the StepMeter of a run."""
    shape, heads = network.settings, network.settings.num_attention_heads
    tied = shape.tie_word_embeddings
    return StepMeter(
        attempt=attempt,
        samples=config.batch.global_samples,
        sequence_length=config.data.sequence_length,
        token_flops=flops.flops_per_token(
            parameters=network.parameters,
            looked_up=0 if tied else shape.vocab_size * shape.hidden_size,
            layers=shape.num_hidden_layers,
            width=heads * (getattr(shape, "head_dim", None) or shape.hidden_size // heads),
            sequence_length=config.data.sequence_length,
        ),
        devices=world.size,
        device_flops=flops.peak_flops(world.device_name),
    )
