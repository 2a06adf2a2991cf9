"""Random traces of a market with two states whose rates change once, for runs without recorded traces."""

from __future__ import annotations

import random
from typing import Final

from bench.spot.traces import Trace

_GAP_S: Final = 300
_DAYS: Final = 21
_MEANS_H: Final = ((0.5, 0.5), (4.0, 1.0), (1.0, 4.0), (12.0, 12.0), (30.0, 2.0), (2.0, 30.0))
"""Hours for which capacity is there, and is missing, in one half of a trace."""


def traces(seed: int, count: int = 8) -> list[Trace]:
    """Return traces of one to sixteen nodes, every fourth of two zones."""
    chance = random.Random(seed)
    return [
        Trace(
            name=f"synthetic-{seed}-{index}",
            gap_s=_GAP_S,
            nodes=(1, 2, 4, 16)[index % 4],
            zones={f"zone-{z}": _zone(chance) for z in "ab"[: 1 + (index % 4 == 3)]},
        )
        for index in range(count)
    ]


def _zone(chance: random.Random) -> tuple[bool, ...]:
    ticks = _DAYS * 24 * 3600 // _GAP_S
    found: list[bool] = []
    there = True
    for half in range(2):
        means = chance.choice(_MEANS_H)
        while len(found) < ticks * (half + 1) // 2:
            hours = chance.expovariate(1 / means[0 if there else 1])
            found += [there] * max(1, round(hours * 3600 / _GAP_S))
            there = not there
    return tuple(found[:ticks])
