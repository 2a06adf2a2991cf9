"""When checkpoints are written and which are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trainer.config.limits import Issues, positive
from trainer.config_errors import ConfigIssue
from trainyard.objects import BadLocation, Location

DEFAULT_INTERVAL_S: Final = 600.0
"""By time, because steps take from milliseconds to minutes and a loss costs time."""


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """When checkpoints are written and which are kept. One is always written at the end."""

    every_steps: int | None = None
    """Steps between checkpoints; null: not by steps."""
    every_seconds: float | None = None
    """Seconds of wall clock between checkpoints; null: not by time, or 600 if `every_steps` is null, too."""
    milestone_every_steps: int | None = None
    """Checkpoints at multiples of this are never deleted; null: no milestones."""
    keep_latest: int = 2
    """Newest checkpoints kept, besides the best, the milestones and the last known good one."""
    store: str | None = None
    """s3://BUCKET/PREFIX for this run only; null: the run directory, which all ranks share."""
    deadline_s: float = 60.0
    """Seconds from a notice to a committed checkpoint; the grace budget of a run record overrides it."""
    export: bool = False
    """Whether the model is written for transformers (safetensors and tokenizer) once the last step is saved, to
    `export` in the run directory. Needs memory for the whole model."""

    @property
    def interval_s(self) -> float | None:
        """Seconds of wall clock between checkpoints; None: by steps only."""
        by_default = DEFAULT_INTERVAL_S if self.every_steps is None else None
        return by_default if self.every_seconds is None else self.every_seconds

    def validate(self) -> Issues:
        """Yield what cannot work."""
        for name in ("every_steps", "every_seconds", "milestone_every_steps"):
            yield from positive(f"checkpoint.{name}", getattr(self, name))
        if self.store is not None:
            try:
                Location.parse(self.store)
            except BadLocation:
                yield ConfigIssue(
                    path="checkpoint.store",
                    problem=f"{self.store!r} is not a location",
                    valid="must be s3://BUCKET/PREFIX, or null for the run directory",
                    action="correct it",
                    code="invalid-location",
                )
        yield from positive("checkpoint.keep_latest", self.keep_latest)
        yield from positive("checkpoint.deadline_s", self.deadline_s)
