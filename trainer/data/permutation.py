"""A seeded permutation of N items in O(1) memory.

Items are cells (left, right) of a grid of about sqrt(N) by sqrt(N). Rounds of a Feistel network
rotate each half by an amount that depends on the other; results beyond N (fewer than one in sqrt(N))
are permuted again until they land inside (cycle walking). Position k of epoch e costs the same for
every k, so resuming is one call.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

_ROUNDS = 6
_MASK64 = (1 << 64) - 1
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFT, _HALF_WORD = np.uint64(29), np.uint64(32)

UInt64s = npt.NDArray[np.uint64]
Int64s = npt.NDArray[np.int64]


class Permutation:
    """The permutation of `size` items (1 to 2**62) for one (seed, epoch)."""

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
