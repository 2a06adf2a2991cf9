"""Asynchronous successive halving: stop runs that are worse than their peers at the same step.

The stopping variant of ASHA (Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020):
a run that reaches a rung continues if it is among the best 1/reduction of all runs that have reached it so
far. No run waits for slower ones, so early runs are compared with few peers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Asha:
    """When runs are compared."""

    min_steps: int
    """Step of the first rung."""
    reduction: int
    """Factor between the steps of two rungs; one of so many runs goes on."""

    def rungs(self) -> Iterator[int]:
        """Yield the steps at which runs are compared, without end."""
        step = self.min_steps
        while True:
            yield step
            step *= self.reduction


def value_at(values: Mapping[int, float], rung: int) -> float | None:
    """Return the first value at or after a rung's step; None before that."""
    reached = [step for step in values if step >= rung]
    return values[min(reached)] if reached else None


def goes_on(value: float, peers: Sequence[float], reduction: int, *, maximize: bool) -> bool:
    """Return whether a run continues after a rung.

    `peers`: what other runs had when they reached it. A value that is not finite never continues. With fewer
    than `reduction` runs at the rung, the best of them continues.
    """
    if not math.isfinite(value):
        return False
    sign = -1.0 if maximize else 1.0
    ranked = sorted(sign * one for one in [*peers, value] if math.isfinite(one))
    kept = max(1, (len(peers) + 1) // reduction)
    return sign * value <= ranked[kept - 1]
