"""Tokens for the steps: any sample of any step is one computation and one seek away.

Each split's shards are cut into non-overlapping windows of `sequence_length` tokens (a sample also
sees the token after its window, as the last target). Sample k of the run, counted over all ranks
from 0, is window `Permutation(windows, seed, k // windows)(k % windows)`. So the only state is how
many samples were used, and any number of ranks reads the same samples for the same step.

Shapes: B samples, S = sequence_length.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from training.prepare.dataset import DatasetError, Index, Split, read_index, shard_mistakes
from training.trainer.permutation import Permutation

Int64s = npt.NDArray[np.int64]
Tokens = npt.NDArray[np.unsignedinteger[Any]]
"""uint16 or uint32, as the dataset's index says."""


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """Where the run is in its data: exact for any number of ranks."""

    samples: int
    """Samples used since the run began, over all ranks."""
    windows: int
    """Samples in one epoch."""
    seed: int

    @property
    def epoch(self) -> int:
        """Times that the whole training split was used."""
        return self.samples // self.windows


class TokenWindows:
    """The windows of one split, as rows that can be picked in any order."""

    def __init__(self, folder: Path, index: Index, split: Split, sequence_length: int) -> None:
        """Map the shards of `split`. Raises DatasetError when none holds a whole window."""
        self._rows_S1: list[Tokens] = []
        starts = [0]
        for shard in index.of(split):
            count = (shard.tokens - 1) // sequence_length
            if count < 1:
                continue
            tokens = np.memmap(folder / shard.name, dtype=index.dtype, mode="r").view(np.ndarray)
            windows = np.lib.stride_tricks.sliding_window_view(tokens, sequence_length + 1)
            self._rows_S1.append(windows[::sequence_length][:count])
            starts.append(starts[-1] + count)
        if not self._rows_S1:
            raise DatasetError(
                f"{folder}: no {split} shard holds data.sequence_length + 1 = "
                f"{sequence_length + 1} tokens; prepare more text or lower data.sequence_length"
            )
        self._starts = np.array(starts, dtype=np.int64)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def gather(self, wanted_B: Int64s) -> Tokens:
        """The windows with these numbers, shape [B, S + 1], in that order."""
        if len(self._rows_S1) == 1:
            return self._rows_S1[0][wanted_B]
        shards_B = np.searchsorted(self._starts, wanted_B, side="right") - 1
        first = self._rows_S1[0]
        rows_BS1 = np.empty((len(wanted_B), first.shape[1]), dtype=first.dtype)
        for shard in np.unique(shards_B):
            here = shards_B == shard
            rows_BS1[here] = self._rows_S1[shard][wanted_B[here] - self._starts[shard]]
        return rows_BS1


class TrainingOrder:
    """The seeded order of the training windows over all epochs."""

    def __init__(self, windows: TokenWindows, seed: int) -> None:
        self._windows = windows
        self._seed = seed
        self._epoch = -1
        self._permutation = Permutation(1, seed, 0)

    def cursor(self, samples: int) -> Cursor:
        """The state after `samples` samples."""
        return Cursor(samples=samples, windows=len(self._windows), seed=self._seed)

    def take(self, first: int, count: int) -> Tokens:
        """Samples first .. first + count - 1 of the run, shape [count, S + 1]."""
        size = len(self._windows)
        wanted: list[Int64s] = []
        while count:
            epoch, position = divmod(first, size)
            here = min(count, size - position)
            positions = np.arange(position, position + here, dtype=np.int64)
            wanted.append(self._of_epoch(epoch)(positions))
            first, count = first + here, count - here
        return self._windows.gather(np.concatenate(wanted))

    def _of_epoch(self, epoch: int) -> Permutation:
        if epoch != self._epoch:
            self._epoch = epoch
            self._permutation = Permutation(len(self._windows), self._seed, epoch)
        return self._permutation


def spread(windows: TokenWindows, samples: int) -> Int64s:
    """Numbers of at most `samples` windows, evenly spread, ascending: the evaluation set."""
    count = min(samples, len(windows))
    return np.arange(count, dtype=np.int64) * len(windows) // count


def unigram_loss(index: Index, targets: Tokens) -> float:
    """Mean loss, nats per token, of a model that knows only how often each token occurs.

    Frequencies are those of the training split, with one added to each so that none is zero.
    """
    counts = np.array(index.unigram_counts, dtype=np.float64) + 1
    log_frequencies = np.log(counts / counts.sum())
    seen = np.bincount(targets.reshape(-1), minlength=len(counts))
    return float(-(seen * log_frequencies).sum() / seen.sum())


def open_dataset(path: Path, version: str, *, full_check: bool) -> tuple[Path, Index]:
    """The folder and index of a version whose shards are all there and whole.

    Raises DatasetError with one line per bad shard: before the first step, not at step 10,000.
    """
    folder = path / version
    index = read_index(folder)
    mistakes = shard_mistakes(folder, index, hashes=full_check)
    if mistakes:
        raise DatasetError("\n".join(mistakes))
    return folder, index
