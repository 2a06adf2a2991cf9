"""Measuring and showing."""

from __future__ import annotations

from dataclasses import dataclass

from training.trainer.config.limits import Mistakes, positive


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Loss on the held-out files, also measured at the end of the run."""

    every_steps: int | None = 50
    """Steps between evaluations; null: only at the end."""
    samples: int = 128
    """Samples, spread evenly over the held-out files; all of them when there are fewer."""

    def mistakes(self) -> Mistakes:
        """What cannot work, one line each: path, got, allowed, remedy."""
        yield from positive("evaluation.every_steps", self.every_steps)
        yield from positive("evaluation.samples", self.samples)


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """What the console shows; metrics.jsonl always has every step."""

    every_seconds: float = 5.0
    """Seconds between progress lines."""

    def mistakes(self) -> Mistakes:
        """What cannot work, one line each: path, got, allowed, remedy."""
        yield from positive("report.every_seconds", self.every_seconds)
