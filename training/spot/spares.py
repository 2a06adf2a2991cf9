"""What a spare brings: a group that follows the run's state, so that it replaces a lost one at once.

A run of N groups holds k more, and trains with min(N, N + k - X) of them while X are missing. So it does more work
per hour. Per USD it never does: of N + k groups as large a share is lost as of N, and the spares do not train.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

TAKE_OVER_S: Final = 2.5
"""From the loss of a group that falls silent, as with its node, to the first step with a spare: p95 of 20, 2.16 s
on 2026-11-27, rounded up. Of it 2 s are `groups.silent_after_s`."""
_MOST: Final = 4


@dataclass(frozen=True, kw_only=True)
class Losses:
    """How groups come and go."""

    per_group_hour: float
    """Losses of a group per hour that it is there."""
    replaced_after_h: float
    """Hours from a loss until another group is there, loaded."""


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """A run with a number of spares."""

    spares: int
    useful: float
    """Groups that train, on average, over the groups that the run needs: proportional to work per hour."""
    per_paid: float
    """Groups that train over groups that are paid: proportional to work per USD."""


def outlooks(groups: int, losses: Losses) -> Iterator[Outlook]:
    """Yield what to expect with no spare, one, two and so on.

    Each group is there for 1 / rate on average, then missing until it is replaced, independently of the others. So
    it is missing for the share rate x time / (1 + rate x time), and the missing ones have a binomial distribution.
    """
    for spares in range(_MOST + 1):
        held = groups + spares
        away = losses.per_group_hour * losses.replaced_after_h
        p = away / (1 + away)
        chances = binomial(held, p)
        training = sum(c * min(groups, held - i) for i, c in enumerate(chances))
        stalled = groups * losses.per_group_hour * TAKE_OVER_S / 3600
        training *= max(0.0, 1 - stalled)
        paid = held * (1 - p)
        yield Outlook(
            spares=spares,
            useful=training / groups,
            per_paid=training / paid if paid else 0.0,
        )


def replayed(
    counts: Sequence[float], gap_s: float, groups: int, replaced_after_s: float
) -> list[Outlook]:
    """Return what recorded capacity would have given; empty where it never had a group more than the run needs.

    `counts`: groups that could be had at each tick of `gap_s` seconds. When they drop by a share, each group of
    the run is lost with this chance; a lost one is replaced after `replaced_after_s` if capacity is left. While
    there is capacity for fewer groups than the run needs, spares change nothing.
    """
    room = int(max(counts, default=0)) - groups
    return [
        _replay(counts, gap_s, groups, spares, min(replaced_after_s, gap_s))
        for spares in range(min(_MOST, room) + 1 if room > 0 else 0)
    ]


def _replay(
    counts: Sequence[float], gap_s: float, groups: int, spares: int, waits_s: float
) -> Outlook:
    training = paid = 0.0
    for before, now in pairwise(counts):
        held = int(min(now, groups + spares))
        paid += held * gap_s
        had = int(min(before, groups + spares))
        share = max(0.0, before - now) / before if before else 0.0
        chances = binomial(had, share)
        short = sum(c * max(0, i - spares) for i, c in enumerate(chances))
        training += min(groups, held) * gap_s - short * waits_s
        taken_over = sum(chances[1 : spares + 1])
        training -= min(groups, held) * taken_over * TAKE_OVER_S
    whole = groups * gap_s * (len(counts) - 1)
    return Outlook(
        spares=spares,
        useful=max(0.0, training) / whole,
        per_paid=max(0.0, training) / paid if paid else 0.0,
    )


def binomial(count: int, chance: float) -> list[float]:
    """Return the probabilities that 0, 1, ... of `count` independent events happen."""
    return [math.comb(count, i) * chance**i * (1 - chance) ** (count - i) for i in range(count + 1)]
