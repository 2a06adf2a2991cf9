"""Samples per step."""

from __future__ import annotations

from dataclasses import dataclass

from training.trainer.config.limits import Mistakes, positive


@dataclass(frozen=True, kw_only=True)
class BatchConfig:
    """Samples per optimizer step. The global batch does not change with the world size."""

    global_samples: int = 32
    """Samples per step over all ranks; a multiple of micro_samples x world size."""
    micro_samples: int = 16
    """Samples per forward pass on one rank; the rest is gradient accumulation."""

    def mistakes(self) -> Mistakes:
        """What cannot work, one line each: path, got, allowed, remedy."""
        yield from positive("batch.global_samples", self.global_samples)
        yield from positive("batch.micro_samples", self.micro_samples)
        if self.micro_samples > 0 and self.global_samples % self.micro_samples:
            yield (
                f"batch.global_samples: got {self.global_samples}; allowed a multiple of "
                f"batch.micro_samples = {self.micro_samples}"
            )
