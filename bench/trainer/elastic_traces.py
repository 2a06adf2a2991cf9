"""Recorded traces of capacity, replayed by what a change costs: elastic groups, torchft, and stop and resume."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from bench.spot.economy import V100_USD_HOUR
from bench.trainer.elastic_changes import MOST_GROUPS

TIME_GOAL: Final = 1.15
"""Time of a run over that of an undisturbed one with the same capacity."""


@dataclass(frozen=True, kw_only=True)
class Stalls:
    """Seconds that a change stalls the groups that stay."""

    lost_s: float
    joined_s: float


def useful_share(
    groups: Sequence[int], tick_s: float, start_s: float, stalls: Stalls | None
) -> float:
    """Return the useful part of the paid group time for a number of groups at each tick.

    With `stalls` those that stay go on, and a group that comes is useful after `start_s`. Else every change
    restarts all groups, which takes `start_s`. More than a tick is never lost.
    """
    paid = sum(groups) * tick_s
    lost = 0.0
    for before, now in pairwise([0, *groups]):
        if now == before:
            continue
        staying = min(before, now) if stalls else 0
        if stalls:
            stall_s = stalls.lost_s if now < before else stalls.joined_s
            lost += min(tick_s, stall_s) * staying
        lost += min(tick_s, start_s) * (now - staying)
    return 1 - lost / paid if paid else math.nan


def replay(
    file: Path, arms: Mapping[str, Stalls | None], starts_s: Mapping[str, float], step_s: float
) -> dict[str, Any]:
    """Return what each arm makes of a trace, by each time that a group needs to start.

    `step_s`: group seconds of a step, the same for all arms.
    """
    trace = json.loads(file.read_text())
    capacity, tick_s = trace["data"], float(trace["metadata"]["gap_seconds"])
    most = max(capacity) or 1
    groups = [
        round(MOST_GROUPS * value / most) if most > MOST_GROUPS else value for value in capacity
    ]
    count = sum(a != b for a, b in pairwise(groups))
    found = {
        name: {
            arm: _values(groups, tick_s, start_s, stalls, step_s) for arm, stalls in arms.items()
        }
        for name, start_s in starts_s.items()
    }
    return {"trace": file.stem, "changes": count, **found}


def _values(
    groups: Sequence[int], tick_s: float, start_s: float, stalls: Stalls | None, step_s: float
) -> dict[str, float]:
    share = useful_share(groups, tick_s, start_s, stalls)
    return {
        "useful_share": share,
        "time_ratio": 1 / share if share else math.inf,
        "steps_per_usd": share * 3600 / (V100_USD_HOUR * step_s),
    }


def lines(rows: Sequence[Mapping[str, Any]], starts_s: Mapping[str, float]) -> list[str]:
    """Return the lines of Markdown."""
    if not rows:
        return []
    arms = list(rows[0][next(iter(starts_s))])
    result = [
        f"Recorded traces by these costs, {' / '.join(arms)}. Time is over that of undisturbed groups with the "
        f"same capacity (goal {TIME_GOAL}x); a USD pays {3600 / V100_USD_HOUR:.0f} s of a group. Work is "
        "proportional to groups, a step costs all the same, and what is lost since a checkpoint is not counted:",
        "",
        "| trace | changes | a group starts in | time | useful steps per USD |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        for name, start_s in starts_s.items():
            values = [row[name][arm] for arm in arms]
            ratios = " / ".join(f"{value['time_ratio']:.4f}" for value in values)
            steps = " / ".join(f"{value['steps_per_usd']:,.0f}" for value in values)
            result.append(
                f"| {row['trace']} | {row['changes']} | {start_s:.1f} s ({name}) | {ratios} | {steps} |"
            )
    return result
