"""The order of samples, computed on demand from the seed.

Sample k of the run, counted over all ranks from 0, is window `Permutation(windows, seed, k //
windows)(k % windows)`; with several datasets, a `Mixture` maps k to a dataset and a sample within it.
So the only state is the number of samples used, and any number of ranks reads the same samples for
the same step.

Shapes: B samples, S = sequence_length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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


class Mixture:
    """Maps samples to datasets, for integer weights w_1 .. w_n >= 1 with sum W.

    Every W consecutive samples hold exactly w_i of dataset i, spread evenly, so any prefix of the run has each
    dataset's share to within a few samples.
    """

    def __init__(self, weights: Sequence[int]) -> None:
        self._weights = np.array(weights, dtype=np.int64)
        sources = np.repeat(np.arange(len(weights)), self._weights)
        numbers = np.concatenate([np.arange(weight) for weight in weights])
        # Dataset i has its j-th sample of each round at (j + 1/2) / w_i of the round.
        order = np.argsort((2 * numbers + 1) / (2 * self._weights[sources]), kind="stable")
        self._sources = sources[order].astype(np.int64)
        self._numbers = numbers[order].astype(np.int64)

    def find(self, samples_B: Int64s) -> tuple[Int64s, Int64s]:
        """Return each sample's dataset and its number within that dataset."""
        rounds_B, places_B = np.divmod(samples_B, len(self._sources))
        sources_B = self._sources[places_B]
        return sources_B, rounds_B * self._weights[sources_B] + self._numbers[places_B]


_ROUNDS = 6
_MASK64 = (1 << 64) - 1
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFT, _HALF_WORD = np.uint64(29), np.uint64(32)

UInt64s = npt.NDArray[np.uint64]


class Permutation:
    """The permutation of `size` items (1 to 2**62) for one (seed, epoch), in O(1) memory.

    Items are cells (left, right) of a grid of about sqrt(N) by sqrt(N). Rounds of a Feistel network rotate
    each half by an amount that depends on the other; results beyond N (fewer than one in sqrt(N)) are
    permuted again until they land inside (cycle walking). Position k costs the same for every k, so resuming
    is one call.
    """

    def __init__(self, size: int, seed: int, epoch: int) -> None:
        if size < 1:
            raise ValueError(f"size: got {size}; must be at least 1")
        self._size = np.uint64(size)
        rows = math.isqrt(size - 1) + 1
        self._rows, self._columns = np.uint64(rows), np.uint64(-(-size // rows))
        key = _splitmix(seed & _MASK64) ^ _splitmix((epoch + 0x5851F42D4C957F2D) & _MASK64)
        self._keys = []
        for _ in range(_ROUNDS):
            key = _splitmix(key)
            self._keys.append(np.uint64(key))

    def __call__(self, positions: Int64s) -> Int64s:
        """Return the item at each position; positions are in [0, size)."""
        things = self._rounds(positions.astype(np.uint64))
        (outside,) = np.nonzero(things >= self._size)
        while len(outside):
            things[outside] = self._rounds(things[outside])
            outside = outside[things[outside] >= self._size]
        return things.astype(np.int64)

    def _rounds(self, values: UInt64s) -> UInt64s:
        left = values // self._columns
        right = values - left * self._columns
        for even, odd in zip(self._keys[::2], self._keys[1::2], strict=True):
            left = _turned(left, right, even, self._rows)
            right = _turned(right, left, odd, self._columns)
        return left * self._columns + right


def _turned(values: UInt64s, by: UInt64s, key: np.uint64, size: np.uint64) -> UInt64s:
    """Return (values + h(by, key)) modulo `size`, with h in [0, size) and size below 2**32."""
    mixed = by ^ key
    mixed *= _FACTORS[0]
    mixed ^= mixed >> _SHIFT
    mixed *= _FACTORS[1]
    mixed >>= _HALF_WORD  # the high half of a product is the well-mixed one
    mixed *= size
    mixed >>= _HALF_WORD
    mixed += values
    # Unsigned: what is below `size` becomes huge, so the smaller of both is the remainder.
    np.minimum(mixed, mixed - size, out=mixed)
    return mixed


def _splitmix(state: int) -> int:
    """Return the next SplitMix64 output after `state`."""
    state = (state + 0x9E3779B97F4A7C15) & _MASK64
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK64
    return state ^ (state >> 31)
