"""Hyperparameters of a sweep: the values that each may have, and which of them a run gets.

Deterministic: run number k has the same values whatever the number of runs, on every machine.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Scalar = str | int | float | bool | None
"""Value of a hyperparameter."""

_DIGITS: Final = 4
"""Significant digits of sampled numbers, so that names and tables stay readable."""


@dataclass(frozen=True)
class Choice:
    """Listed values."""

    values: tuple[Scalar, ...]

    def sample(self, rng: random.Random) -> Scalar:
        """Return one of the values, each with the same probability."""
        return self.values[rng.randrange(len(self.values))]


@dataclass(frozen=True, kw_only=True)
class Range:
    """Numbers from `low` to `high`, both included."""

    low: float
    high: float
    scale: Literal["linear", "log"] = "linear"
    """log: every order of magnitude has the same probability."""
    integer: bool = False

    def sample(self, rng: random.Random) -> Scalar:
        """Return a number of the range, rounded to four significant digits."""
        if self.scale == "log":
            value = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        else:
            value = rng.uniform(self.low, self.high)
        if self.integer:
            return round(min(max(value, self.low), self.high))
        return min(max(float(f"{value:.{_DIGITS}g}"), self.low), self.high)


Space = Mapping[str, Choice | Range]
"""Values by parameter."""


def grid_size(space: Mapping[str, Choice]) -> int:
    return math.prod(len(one.values) for one in space.values())


def grid(space: Mapping[str, Choice]) -> list[dict[str, Scalar]]:
    combinations = itertools.product(*(one.values for one in space.values()))
    return [dict(zip(space, values, strict=True)) for values in combinations]


def sample(space: Space, seed: int, number: int) -> dict[str, Scalar]:
    """Return the values of run `number`. Each parameter has a generator of its own, by its name."""
    return {
        name: one.sample(random.Random(f"{seed}/{number}/{name}")) for name, one in space.items()
    }


def expand(
    method: str, space: Mapping[str, Choice | Range], runs: int, seed: int
) -> Sequence[dict[str, Scalar]]:
    """Return the values of every run: all combinations for `grid`, else `runs` samples."""
    if method == "grid":
        return grid({name: one for name, one in space.items() if isinstance(one, Choice)})
    return [sample(space, seed, number) for number in range(runs)]


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
