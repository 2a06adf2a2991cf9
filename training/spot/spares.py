"""When a spare pays: nodes, or groups of nodes, that are held warm so that a lost one is replaced at once.

A run needs N units and holds k more. A rigid gang trains while at most k are missing, an elastic run with
min(N, N + k - X) groups while X are. What counts is useful work per unit that is paid.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

TAKE_OVER_S: Final = 3.0
"""From a loss to the first step with a spare; the goal of elastic groups."""
_MOST: Final = 4
_WORTH_IT: Final = 1.005
"""Less gain than this is within what the rates are wrong by."""


@dataclass(frozen=True, kw_only=True)
class Losses:
    """How units come and go."""

    per_unit_hour: float
    """Losses of a unit per hour that it is there."""
    replaced_after_h: float
    """Hours from a loss until another unit is there, loaded."""


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """A run with a number of spares."""

    spares: int
    useful: float
    """Units that train, on average, over the units that the run needs."""
    per_paid: float
    """Units that train over units that are paid: proportional to work per USD."""


def outlooks(units: int, losses: Losses, *, elastic: bool) -> Iterator[Outlook]:
    """Yield what to expect with no spare, one, two and so on. `units`: nodes of a gang, or groups.

    Each unit is there for 1 / rate on average, then missing until it is replaced, independently of the others. So
    it is missing for the share rate x time / (1 + rate x time), and the missing ones have a binomial distribution.
    """
    for spares in range(_MOST + 1):
        held = units + spares
        away = losses.per_unit_hour * losses.replaced_after_h
        p = away / (1 + away)
        chances = binomial(held, p)
        if elastic:
            training = sum(c * min(units, held - i) for i, c in enumerate(chances))
        else:
            training = units * sum(chances[: spares + 1])
        stalled = units * losses.per_unit_hour * TAKE_OVER_S / 3600
        training *= max(0.0, 1 - stalled)
        paid = held * (1 - p)
        yield Outlook(
            spares=spares,
            useful=training / units,
            per_paid=training / paid if paid else 0.0,
        )


def replayed(
    counts: Sequence[float], gap_s: float, units: int, replaced_after_s: float, *, elastic: bool
) -> list[Outlook]:
    """Return what recorded capacity would have given; empty where it never had a unit more than the run needs.

    `counts`: units that could be had at each tick of `gap_s` seconds. When they drop by a share, each unit of
    the run is lost with this chance; a lost one is replaced after `replaced_after_s` if capacity is left. While
    there is capacity for fewer units than the run needs, spares change nothing.
    """
    room = int(max(counts, default=0)) - units
    return [
        _replay(counts, gap_s, units, spares, min(replaced_after_s, gap_s), elastic=elastic)
        for spares in range(min(_MOST, room) + 1 if room > 0 else 0)
    ]


def _replay(
    counts: Sequence[float], gap_s: float, units: int, spares: int, waits_s: float, *, elastic: bool
) -> Outlook:
    training = paid = 0.0
    for before, now in pairwise(counts):
        held = int(min(now, units + spares))
        paid += held * gap_s
        if now < units and not elastic:
            continue
        had = int(min(before, units + spares))
        share = max(0.0, before - now) / before if before else 0.0
        chances = binomial(had, share)
        if elastic:
            short = sum(c * max(0, i - spares) for i, c in enumerate(chances))
            training += min(units, held) * gap_s - short * waits_s
        else:
            training += units * (gap_s - sum(chances[spares + 1 :]) * waits_s)
        taken_over = sum(chances[1 : spares + 1])
        training -= min(units, held) * taken_over * TAKE_OVER_S
    whole = units * gap_s * (len(counts) - 1)
    return Outlook(
        spares=spares,
        useful=max(0.0, training) / whole,
        per_paid=max(0.0, training) / paid if paid else 0.0,
    )


def binomial(count: int, chance: float) -> list[float]:
    """Return the probabilities that 0, 1, ... of `count` independent events happen."""
    return [math.comb(count, i) * chance**i * (1 - chance) ** (count - i) for i in range(count + 1)]


def best(found: Sequence[Outlook]) -> Outlook:
    """Return the number of spares with the most work per USD; fewer where the gain is within 0.5 %."""
    most = max(one.per_paid for one in found)
    return next(one for one in found if one.per_paid * _WORTH_IT >= most)
