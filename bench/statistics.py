"""Statistics of repeated measurements that assume no distribution."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def median_and_bound(values: Sequence[float]) -> tuple[float, float, float]:
    """The median, and an interval that holds the true one with about 95 % or more.

    The bounds are order statistics: from six pairs on there are some, with fewer it is the whole range.
    """
    ordered = sorted(values)
    drop = _dropped_per_end(len(ordered))
    return statistics.median(ordered), ordered[drop], ordered[-1 - drop]


def _dropped_per_end(count: int) -> int:
    """How many may be left out at each end: two tails of the binomial with one half stay under 5 %."""
    # In whole numbers: 0.5**count is 0 from 1,075 on.
    tail, term, drop = 0, 1, -1
    while 40 * (tail + term) <= 2**count:
        tail += term
        drop += 1
        term = term * (count - drop) // (drop + 1)
    return max(drop, 0)
