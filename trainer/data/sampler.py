"""The order of samples, computed on demand from the seed.

Sample k of the run, counted over all ranks from 0, is window `Permutation(windows, seed, k //
windows)(k % windows)`; with several datasets, `mixture` maps k to a dataset and a sample within it.
So the only state is the number of samples used, and any number of ranks reads the same samples for
the same step.

Shapes: B samples, S = sequence_length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainer.data.mixture import Mixture
from trainer.data.permutation import Permutation
from trainer.data.windows import Int64s, Tokens, TokenWindows

_SEED_STEP = 0x9E3779B97F4A7C15
"""Distance between the seeds of two datasets."""


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """Position of the run in its data; valid for any number of ranks."""

    samples: int
    """Samples used since the run began, over all ranks."""
    windows: int
    """Distinct samples of all datasets."""
    seed: int


class Sampler:
    """The seeded order of the training windows over all epochs."""

    def __init__(self, windows: TokenWindows, seed: int, weights: Sequence[int] = (1,)) -> None:
        """`weights` are integers, one per dataset."""
        self._windows = windows
        self._seed = seed
        self._mixture = Mixture(weights)
        self._bases = np.cumsum([0, *windows.sizes])
        self._made: dict[int, tuple[int, Permutation]] = {}

    def cursor(self, samples: int) -> Cursor:
        """Return the cursor after `samples` samples."""
        return Cursor(samples=samples, windows=len(self._windows), seed=self._seed)

    def find(self, samples_B: Int64s) -> Int64s:
        """Return where the tokens of these samples are, for `gather`."""
        if len(self._windows.sizes) == 1:
            return self._windows.places(self._window_numbers(0, samples_B))
        sources_B, numbers_B = self._mixture.find(samples_B)
        windows_B = np.empty_like(samples_B)
        for source in np.unique(sources_B):
            here = sources_B == source
            windows_B[here] = self._bases[source] + self._window_numbers(
                int(source), numbers_B[here]
            )
        return self._windows.places(windows_B)

    def gather(self, places_B: Int64s) -> Tokens:
        """Return the tokens of samples, shape [B, S + 1]."""
        return self._windows.rows_at(places_B)

    def take(self, first: int, count: int) -> Tokens:
        """Return samples first .. first + count - 1 of the run, shape [count, S + 1]."""
        return self.gather(self.find(np.arange(first, first + count, dtype=np.int64)))

    def _window_numbers(self, source: int, numbers_B: Int64s) -> Int64s:
        """Return the windows of a dataset's samples; `numbers_B` is ascending."""
        size = self._windows.sizes[source]
        if not len(numbers_B):
            return numbers_B
        epoch = int(numbers_B[0]) // size
        if int(numbers_B[-1]) // size == epoch:
            return self._permutation(source, epoch)(numbers_B - epoch * size)
        epochs_B, positions_B = np.divmod(numbers_B, size)
        windows_B = np.empty_like(numbers_B)
        for epoch in np.unique(epochs_B):
            here = epochs_B == epoch
            windows_B[here] = self._permutation(source, int(epoch))(positions_B[here])
        return windows_B

    def _permutation(self, source: int, epoch: int) -> Permutation:
        made = self._made.get(source)
        if made is None or made[0] != epoch:
            seed = self._seed + source * _SEED_STEP
            made = (epoch, Permutation(self._windows.sizes[source], seed, epoch))
            self._made[source] = made
        return made[1]


def evaluation_windows(
    windows: TokenWindows, samples: int, weights: Sequence[int] = (1,)
) -> Int64s:
    """Return ascending numbers of about `samples` windows: the evaluation set.

    Each dataset contributes by weight, evenly spread, at most all of its windows.
    """
    chosen, base = [], 0
    for size, weight in zip(windows.sizes, weights, strict=True):
        count = min(-(-samples * weight // sum(weights)), size)
        chosen.append(base + np.arange(count, dtype=np.int64) * size // count)
        base += size
    return np.concatenate(chosen)


def baseline_loss(
    counts: Sequence[Sequence[int]], targets: Tokens, weights: Sequence[int] = (1,)
) -> float:
    """Return the mean loss of a unigram model in nats per token.

    Frequencies are those of the training splits, mixed by weight, with add-one smoothing.
    """
    shares = np.array(weights, dtype=np.float64) / sum(weights)
    frequencies = np.zeros(len(counts[0]), dtype=np.float64)
    for share, of_one in zip(shares, counts, strict=True):
        smoothed: npt.NDArray[np.float64] = np.array(of_one, dtype=np.float64) + 1
        frequencies += share * smoothed / smoothed.sum()
    seen = np.bincount(targets.reshape(-1), minlength=len(frequencies))
    return float(-(seen * np.log(frequencies)).sum() / seen.sum())
