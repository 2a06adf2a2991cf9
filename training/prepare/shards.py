"""Write tokens into shards, one open shard per split."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from training.prepare.dataset import START_DTYPE, Shard, Split
from training.prepare.tokens import Tokens
from trainyard.disk import write_durably


@dataclass(kw_only=True)
class ShardWriter:
    """Writes the shards of one split; holds at most one shard in memory."""

    folder: Path
    split: Split
    limit: int
    """Maximum tokens per shard."""
    vocab_size: int
    shards: list[Shard] = field(default_factory=list)
    counts: npt.NDArray[np.int64] = field(init=False)
    """Count of each token written."""
    _waiting: list[Tokens] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)
    _held: int = 0

    def __post_init__(self) -> None:
        self.counts = np.zeros(self.vocab_size, dtype=np.int64)

    def add(self, tokens: Tokens, *, begins: bool) -> None:
        """Append tokens of a document; only documents longer than a shard are split."""
        for start in range(0, len(tokens), self.limit):
            piece = tokens[start : start + self.limit]
            if self._held + len(piece) > self.limit:
                self.close()
            if begins and start == 0:
                self._starts.append(self._held)
            self._waiting.append(piece)
            self._held += len(piece)

    def close(self) -> None:
        """Write the open shard durably."""
        if not self._waiting:
            return
        tokens = np.concatenate(self._waiting)
        starts = np.array(self._starts, dtype=START_DTYPE)
        name = f"shard-{self.split}-{len(self.shards):05d}.bin"
        shard = Shard(
            name=name,
            split=self.split,
            tokens=len(tokens),
            sha256=hashlib.sha256(tokens.data).hexdigest(),
            documents=len(starts),
            starts_sha256=hashlib.sha256(starts.tobytes()).hexdigest(),
        )
        write_durably(self.folder / shard.name, tokens.data)
        write_durably(self.folder / shard.starts_name, starts.tobytes())
        self.shards.append(shard)
        self.counts += np.bincount(tokens, minlength=self.vocab_size)
        self._waiting, self._starts, self._held = [], [], 0
