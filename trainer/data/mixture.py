"""The dataset of each sample of the run, computed from the weights.

Weights are integers w_1 .. w_n with sum W. Every W consecutive samples hold exactly w_i of dataset
i, spread evenly, so any prefix of the run has each dataset's share to within a few samples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]


class Mixture:
    """Maps samples to datasets, for integer weights >= 1."""

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
