"""Write tokens into shards, one open shard per split, and continue after a kill."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from trainer.prepare.dataset import START_DTYPE, Shard, Split, file_sha256
from trainer.prepare.tokens import Tokens
from trainyard.disk import write_durably

JOURNAL_FILE: Final = "journal.jsonl"
"""A line for each shard of an unfinished version: the shard, and the position in the source after it."""

Position = tuple[int, int]
"""Pieces of documents that the closed shards of a split hold, and tokens of the next piece that they hold."""


@dataclass(kw_only=True)
class ShardWriter:
    """Writes the shards of one split; holds at most one shard in memory."""

    folder: Path
    split: Split
    limit: int
    """Maximum tokens per shard."""
    vocab_size: int
    journal: bool = False
    """Record each shard, so that `resume` can continue."""
    shards: list[Shard] = field(default_factory=list)
    counts: npt.NDArray[np.int64] = field(init=False)
    """Count of each token written."""
    reached: Position = (0, 0)
    """Where the next shard begins."""
    _waiting: list[Tokens] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)
    _held: int = 0
    _added: int = 0
    """Pieces that came before the next call of `add`."""

    def __post_init__(self) -> None:
        self.counts = np.zeros(self.vocab_size, dtype=np.int64)

    def skip(self) -> bool:
        """Pass over the next piece if the closed shards hold all of it."""
        if self._added >= self.reached[0]:
            return False
        self._added += 1
        return True

    def add(self, tokens: Tokens, *, begins: bool) -> None:
        """Append tokens of a document; only documents longer than a shard are split."""
        first = self.reached[1] if self._added == self.reached[0] else 0
        for start in range(first, len(tokens), self.limit):
            piece = tokens[start : start + self.limit]
            if self._held + len(piece) > self.limit:
                self.close((self._added, start))
            if begins and start == 0:
                self._starts.append(self._held)
            self._waiting.append(piece)
            self._held += len(piece)
        self._added += 1

    def close(self, reached: Position | None = None) -> None:
        """Write the open shard durably. `reached`: default, after the last piece."""
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
        self.reached = reached or (self._added, 0)
        if self.journal:
            _record(self)

    def resume(self, dtype: str) -> None:
        """Continue after the shards that the folder's journal names, if all of them are complete."""
        entries = [entry for entry in _read_journal(self.folder) if entry["split"] == self.split]
        shards = [Shard(**entry["shard"]) for entry in entries]
        if not entries or any(not _is_whole(self.folder, shard) for shard in shards):
            return
        for shard in shards:
            tokens = np.fromfile(self.folder / shard.name, dtype=dtype)
            self.counts += np.bincount(tokens, minlength=self.vocab_size)
        self.shards = shards
        self.reached = (entries[-1]["reached"][0], entries[-1]["reached"][1])


def _read_journal(folder: Path) -> list[dict[str, Any]]:
    """Return the entries of an unfinished version, without one that a kill has torn."""
    found = []
    with contextlib.suppress(FileNotFoundError, ValueError):
        for line in (folder / JOURNAL_FILE).read_text().splitlines():
            found.append(json.loads(line))
    return found


def _record(writer: ShardWriter) -> None:
    shard = dataclasses.asdict(writer.shards[-1])
    entry = {"split": writer.split, "shard": shard, "reached": list(writer.reached)}
    with (writer.folder / JOURNAL_FILE).open("a") as stream:
        stream.write(json.dumps(entry) + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def _is_whole(folder: Path, shard: Shard) -> bool:
    files = ((shard.name, shard.sha256), (shard.starts_name, shard.starts_sha256))
    try:
        return all(file_sha256(folder / name) == digest for name, digest in files)
    except OSError:
        return False
