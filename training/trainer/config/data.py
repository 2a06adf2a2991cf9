"""Which tokens are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from training.spec import LATEST
from training.trainer.config.limits import Mistakes, positive


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which tokens are read, and how they are cut into samples."""

    path: str = ""
    """Folder made by `python -m training.prepare`: holds one folder per version, and `latest`."""
    version: str = LATEST
    """Sixteen hexadecimal characters, or `latest`. A resumed run keeps the version it began with."""
    sequence_length: int = 128
    """Tokens per sample that the model predicts."""
    verify: Literal["full", "sizes"] = "full"
    """Before the first step: check every shard's SHA-256, or only its size."""

    def mistakes(self) -> Mistakes:
        """What cannot work, one line each: path, got, allowed, remedy."""
        yield from positive("data.sequence_length", self.sequence_length)
        if not self.path:
            yield "data.path: missing; make one with `python -m training.prepare` and name it"
