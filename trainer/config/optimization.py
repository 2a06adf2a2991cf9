"""The optimizer and its learning rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainer.config.limits import Issues, fraction, not_negative, positive


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """AdamW. Weight decay applies to matrices only, not to norms."""

    learning_rate: float = 1e-3
    """Peak learning rate."""
    scale_learning_rate: int | None = None
    """Samples per step for which `learning_rate` was tuned: the peak is scaled linearly to
    `batch.global_samples`; null: not scaled."""
    beta1: float = 0.9
    """Decay rate of the first moment."""
    beta2: float = 0.95
    """Decay rate of the second moment."""
    epsilon: float = 1e-8
    """Term added to the denominator for numerical stability."""
    weight_decay: float = 0.1
    """Decoupled weight decay coefficient."""
    clip_norm: float = 1.0
    """Gradients are scaled down to this global 2-norm."""

    def validate(self) -> Issues:
        """Yield what cannot work."""
        for name in ("learning_rate", "epsilon", "clip_norm"):
            yield from positive(f"optimizer.{name}", getattr(self, name))
        yield from positive("optimizer.scale_learning_rate", self.scale_learning_rate)
        yield from not_negative("optimizer.weight_decay", self.weight_decay)
        yield from fraction("optimizer.beta1", self.beta1)
        yield from fraction("optimizer.beta2", self.beta2)


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """Learning rate over the run: linear warm-up, then the named decay to the last step."""

    kind: Literal["cosine", "linear", "constant"] = "cosine"
    """Decay after the warm-up."""
    warmup_steps: int = 10
    """Steps until the peak; fewer than `steps`."""
    final_fraction: float = 0.1
    """Learning rate at the last step, as a fraction of the peak; ignored by `constant`."""

    def validate(self) -> Issues:
        """Yield what cannot work."""
        yield from not_negative("schedule.warmup_steps", self.warmup_steps)
        yield from fraction("schedule.final_fraction", self.final_fraction)
