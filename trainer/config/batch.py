"""Samples per step."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.config.limits import Issues, out_of_range, positive


@dataclass(frozen=True, kw_only=True)
class BatchConfig:
    """Samples per optimizer step. The global batch does not change with the world size."""

    global_samples: int = 32
    """Samples per step over all ranks; a multiple of micro_samples x world size."""
    micro_samples: int = 16
    """Samples per forward pass on one rank; the rest is gradient accumulation."""

    def validate(self) -> Issues:
        """Yield what cannot work."""
        yield from positive("batch.global_samples", self.global_samples)
        yield from positive("batch.micro_samples", self.micro_samples)
        if self.micro_samples > 0 and self.global_samples % self.micro_samples:
            yield out_of_range(
                "batch.global_samples",
                self.global_samples,
                f"must be a multiple of batch.micro_samples = {self.micro_samples}",
            )
