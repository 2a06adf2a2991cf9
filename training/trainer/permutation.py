"""A seeded order of N things that is computed, never stored.

A Feistel network permutes the smallest square power of two that holds N; values that fall outside
are sent through again until they land inside (cycle walking), which keeps it a permutation of N.
Position k of epoch e costs the same wherever k is, so resuming at any depth is one call.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_ROUNDS = 6
_MASK64 = (1 << 64) - 1

UInt64s = npt.NDArray[np.uint64]
Int64s = npt.NDArray[np.int64]


class Permutation:
    """The order of `size` things (1 to 2**62) for one (seed, epoch)."""

    def __init__(self, size: int, seed: int, epoch: int) -> None:
        if size < 1:
            raise ValueError(f"size: got {size}; allowed >= 1")
        self._size = np.uint64(size)
        half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
        self._half = np.uint64(half_bits)
        self._mask = np.uint64((1 << half_bits) - 1)
        key = _splitmix(seed & _MASK64) ^ _splitmix((epoch + 0x5851F42D4C957F2D) & _MASK64)
        self._keys = []
        for _ in range(_ROUNDS):
            key = _splitmix(key)
            self._keys.append(np.uint64(key))

    def __call__(self, positions: Int64s) -> Int64s:
        """The thing at each position; `positions` lie in [0, size)."""
        things = self._feistel(positions.astype(np.uint64))
        outside = things >= self._size
        while outside.any():
            things[outside] = self._feistel(things[outside])
            outside = things >= self._size
        return things.astype(np.int64)

    def _feistel(self, values: UInt64s) -> UInt64s:
        left, right = values >> self._half, values & self._mask
        for key in self._keys:
            left, right = right, left ^ (_mix(right ^ key) & self._mask)
        return (left << self._half) | right


def _mix(values: UInt64s) -> UInt64s:
    """A 64-bit finalizer (xor-shift and multiply, wrapping)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _splitmix(state: int) -> int:
    """The next 64-bit word after `state`, in plain integers."""
    state = (state + 0x9E3779B97F4A7C15) & _MASK64
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK64
    return state ^ (state >> 31)
