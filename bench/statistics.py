"""How all is measured: arms that take turns, A B B A, and medians with bounds that assume no distribution."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Bound(NamedTuple):
    """A median, and an interval that holds the true one with about 95 % or more."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.2f} ({self.low:.2f} to {self.high:.2f})"

    def percent(self) -> str:
        """Return a difference, in percent."""
        return f"{self.middle:+.1%} ({self.low:+.1%} to {self.high:+.1%})"

    def goal(self, goal: float, *, most: bool = True) -> str:
        """Return the verdict of the median; `most`: whether the goal is the most that it may be, or the least."""
        met = self.middle <= goal if most else self.middle >= goal
        limit = "at most" if most else "at least"
        return f"goal {limit} {goal:g}: {'met' if met else f'missed by {abs(self.middle / goal - 1):.0%}'}"


def interleaved(
    arms: Mapping[str, Callable[[], T]], rounds: int, notify: Callable[[str, int, int], None]
) -> dict[str, list[T]]:
    """Call all arms in each round, forwards and backwards by turns, so that drift affects all equally."""
    found: dict[str, list[T]] = {name: [] for name in arms}
    for number in range(rounds):
        notify("rounds", rounds, number)
        for name in arms if number % 2 == 0 else reversed(list(arms)):
            found[name].append(arms[name]())
    return found


def ratios(above: Sequence[float], below: Sequence[float]) -> Bound:
    """Return the ratio round by round."""
    return median_and_bound([a / b for a, b in zip(above, below, strict=True)])


def p95(values: Sequence[float]) -> float:
    """Return the 95th percentile."""
    return sorted(values)[min(len(values) - 1, len(values) * 95 // 100)]


def median_and_bound(values: Sequence[float]) -> Bound:
    """Return the median and its bounds, which are order statistics; the whole range of fewer than six values."""
    ordered = sorted(values)
    drop = _dropped_per_end(len(ordered))
    return Bound(statistics.median(ordered), ordered[drop], ordered[-1 - drop])


def _dropped_per_end(count: int) -> int:
    """Return how many may be left out at each end: two tails of the binomial with one half stay under 5 %."""
    # In whole numbers: 0.5**count is 0 from 1,075 on.
    tail, term, drop = 0, 1, -1
    while 40 * (tail + term) <= 2**count:
        tail += term
        drop += 1
        term = term * (count - drop) // (drop + 1)
    return max(drop, 0)
