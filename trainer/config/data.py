"""Datasets and samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

from trainer.config.limits import Issues, not_negative, positive
from trainer.config.loader import missing
from trainer.config_errors import ConfigIssue
from trainyard.contract import LATEST

MOST_PARTS: Final = 1 << 16
"""Most samples after which a mixture repeats: its pattern is kept in memory."""
S3: Final = "s3://"
GPU_PREFETCH_STEPS: Final = 8


@dataclass(frozen=True, kw_only=True)
class SourceConfig:
    """One more dataset that is mixed in."""

    path: str
    """As `data.path`."""
    version: str = LATEST
    """As `data.version`."""
    weight: float = 1.0
    """Its share of the samples, against `data.weight` and the other sources'."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Datasets, and how they are divided into samples."""

    path: str = ""
    """Folder written by `python -m trainer.prepare`: one folder per version, and `latest`. Or
    s3://BUCKET/PREFIX with a copy of it, which requires `staging`."""
    version: str = LATEST
    """Sixteen hexadecimal characters, or `latest`. A resumed run keeps the version it began with."""
    weight: float = 1.0
    """Share of the samples that come from `path`, against the weights of `sources`."""
    sources: tuple[SourceConfig, ...] = ()
    """Datasets that are mixed in, with the same tokenizer."""
    sequence_length: int = 128
    """Tokens per sample that the model predicts."""
    documents: Literal["join", "separate"] = "join"
    """join: a sample may hold the end of one document and the beginning of the next. separate: no
    sample crosses the end of a document; documents shorter than a sample are left out, and the last
    sample of each may overlap the one before."""
    verify: Literal["full", "sizes"] = "full"
    """Before the first step: check every shard's SHA-256, or only its size."""
    staging: str | None = None
    """Folder on a local disk that the shards are copied to first, once per node; null: read them
    where they are."""
    prefetch_steps: int | None = None
    """Steps whose samples are read ahead in the background; 0: each when its step begins. null: 8
    with a GPU; 0 on CPUs, where the thread would take more time from the step than it saves."""

    def validate(self) -> Issues:
        """Yield what cannot work."""
        yield from positive("data.sequence_length", self.sequence_length)
        yield from positive("data.weight", self.weight)
        yield from not_negative("data.prefetch_steps", self.prefetch_steps or 0)
        if not self.path:
            yield missing("data.path", "must be a dataset that `python -m trainer.prepare` wrote")
        for number, source in enumerate(self.sources):
            yield from positive(f"data.sources[{number}].weight", source.weight)
        if min(self._shares()) > 0 and sum(whole_weights(self._shares())) > MOST_PARTS:
            yield ConfigIssue(
                path="data.sources",
                problem=f"weights {', '.join(map(str, self._shares()))} repeat after too many samples",
                valid=f"must be in proportion to whole numbers with a sum of at most {MOST_PARTS}",
                action="round them",
                code="out-of-range",
            )
        for path in self.paths():
            if path.startswith(S3) and self.staging is None:
                yield missing(
                    "data.staging", f"must be a folder on a local disk, to which {path} is copied"
                )

    def steps_ahead(self, *, gpu: bool) -> int:
        """`prefetch_steps`, or what its null means."""
        if self.prefetch_steps is not None:
            return self.prefetch_steps
        return GPU_PREFETCH_STEPS if gpu else 0

    def paths(self) -> tuple[str, ...]:
        """Of all datasets, `path` first."""
        return (self.path, *(source.path for source in self.sources))

    def versions(self) -> tuple[str, ...]:
        """Asked for of each."""
        return (self.version, *(source.version for source in self.sources))

    def weights(self) -> tuple[int, ...]:
        """Of each, as the smallest whole numbers with the same shares."""
        return whole_weights(self._shares())

    def _shares(self) -> tuple[float, ...]:
        return (self.weight, *(source.weight for source in self.sources))


def whole_weights(shares: Sequence[float]) -> tuple[int, ...]:
    """The smallest whole numbers in the same proportion as these decimals (> 0)."""
    exact = [Fraction(str(share)) for share in shares]
    common = math.lcm(*(share.denominator for share in exact))
    whole = [int(share * common) for share in exact]
    divisor = math.gcd(*whole)
    return tuple(number // divisor for number in whole)
