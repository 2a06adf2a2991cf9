"""Interruption schedules, with or without notice: random, or from a trace."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

TRACES: Final = Path(__file__).parents[1] / "traces"


@dataclass(frozen=True, kw_only=True)
class Interruption:
    """One loss of capacity."""

    after_s: float
    """Seconds of running since the one before, or since the beginning."""
    notice: bool
    """Whether the run gets a notice; else a rank is killed."""


def poisson_schedule(seed: int, mean_s: float, total_s: float) -> list[Interruption]:
    """Interruptions at a constant rate, one each `mean_s` seconds."""
    chance, gaps = random.Random(seed), list[float]()
    while sum(gaps) < total_s:
        gaps.append(chance.expovariate(1 / mean_s))
    return _half_with_notice(gaps[:-1], chance)


def trace_schedule(file: Path, seed: int, mean_s: float, total_s: float) -> list[Interruption]:
    """The interruptions of a trace, on a scale on which there is one each `mean_s` seconds.

    A trace is {"metadata": {"gap_seconds": S}, "data": [instances at each tick]}. A tick with fewer
    instances than the one before is an interruption; time without any instance does not count. It
    is read from a random place on, round and round.
    """
    gaps = running_times(json.loads(file.read_text())["data"])
    if not gaps:
        raise ValueError(f"{file}: no interruption in it")
    chance = random.Random(seed)
    scale = mean_s * len(gaps) / sum(gaps)
    start, found = chance.randrange(len(gaps)), list[float]()
    while sum(found) < total_s:
        found.append(gaps[(start + len(found)) % len(gaps)] * scale)
    return _half_with_notice(found[:-1], chance)


def running_times(instances: list[int]) -> list[int]:
    """Return the ticks with capacity before each interruption, without those after the last."""
    gaps, ticks = [], 0
    for before, now in pairwise(instances):
        ticks += before > 0
        if now < before:
            gaps.append(ticks)
            ticks = 0
    return [gap for gap in gaps if gap > 0]


def _half_with_notice(gaps: list[float], chance: random.Random) -> list[Interruption]:
    notices = [number % 2 == 0 for number in range(len(gaps))]
    chance.shuffle(notices)
    pairs = zip(gaps, notices, strict=True)
    return [Interruption(after_s=gap, notice=notice) for gap, notice in pairs]
