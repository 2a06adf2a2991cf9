"""What to do about a team's spending. Pure: readings in, a level out.

A run is never stopped by a single reading: two in a row must be complete, plausible and above the limit. Readings
are taken when the limit is expected to be reached, so that no time is lost by this.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

CONFIRM_S: Final = 2.0
"""Seconds between a reading above the limit and the one that confirms it."""
TOLERANCE: Final = 1.02
"""A reading may exceed the last one by what the team's nodes cost since, times this."""


class Level(IntEnum):
    """What is done, each including those below."""

    NONE = 0
    WARN = 1
    HOLD = 2
    """No further run is admitted."""
    DRAIN = 3
    """Runs on spot nodes and of low priority save and stop."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """A team's limits of a calendar month in UTC; None: no such limit."""

    team: str
    usd_per_month: float | None = None
    gpu_hours_per_month: float | None = None
    warn_at: float = 0.8
    """Part of the limit from which is warned."""
    action: Level = Level.WARN
    """What is done at the limit."""
    spot_flavors: tuple[str, ...] = ()
    """Pools whose runs a drain stops."""
    usual_priority: int = 0
    """Runs below it are stopped by a drain on every pool."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a team had spent in a month at one moment, and spends."""

    at: float
    """Unix seconds."""
    usd: float
    gpu_hours: float
    usd_per_hour: float
    gpus: float
    complete: bool = True
    """Whether everything could be read. An incomplete one may be too low or too high."""


@dataclass(frozen=True, kw_only=True)
class Override:
    """Somebody's permission to spend more, for a time."""

    until: float
    """Unix seconds."""
    by: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What is to be done, and why."""

    level: Level
    reason: str
    look_again_s: float
    """Seconds until the limit can be reached; infinity: never at this rate."""


def used(budget: Budget, reading: Reading) -> float:
    """Return the used part of the limit that is used most; 0 without limits."""
    parts = (
        (reading.usd, budget.usd_per_month),
        (reading.gpu_hours, budget.gpu_hours_per_month),
    )
    return max((spent / limit for spent, limit in parts if limit), default=0.0)


def seconds_to_limit(budget: Budget, reading: Reading) -> float:
    """Return the time until a limit is reached at the present rate; infinity: never."""
    parts = (
        (reading.usd, budget.usd_per_month, reading.usd_per_hour),
        (reading.gpu_hours, budget.gpu_hours_per_month, reading.gpus),
    )
    left = [
        (limit - spent) / rate * 3600.0
        for spent, limit, rate in parts
        if limit is not None and rate > 0
    ]
    return max(0.0, min(left, default=math.inf))


def plausible(before: Reading, after: Reading) -> bool:
    """Whether a team can have spent what the second reading says, by the rates of both."""
    hours = (after.at - before.at) / 3600.0
    if hours < 0 or after.usd < before.usd - 1e-6:
        return False
    dollars = max(before.usd_per_hour, after.usd_per_hour) * hours * TOLERANCE
    gpu_hours = max(before.gpus, after.gpus) * hours * TOLERANCE
    return (
        after.usd <= before.usd + dollars + 1e-6
        and after.gpu_hours <= before.gpu_hours + gpu_hours + 1e-6
    )


def decide(
    budget: Budget,
    readings: Sequence[Reading],
    current: Level,
    override: Override | None = None,
) -> Decision:
    """Decide by the readings of this month, the last one newest. `current`: what is in force this month.

    Without a trustworthy reading what is in force stays.
    """
    if not readings:
        return Decision(level=current, reason="not read yet", look_again_s=CONFIRM_S)
    last = readings[-1]
    if override and last.at < override.until:
        text = f"overridden by {override.by}: {override.reason}"
        left = min(override.until - last.at, seconds_to_limit(budget, last) or math.inf)
        return Decision(level=Level.NONE, reason=text, look_again_s=left)
    wanted, part = _wanted(budget, last), used(budget, last)
    text = f"{part:.1%} of the month's budget is used"
    if not last.complete:
        text = f"{text}, as far as is known"
        return Decision(level=current, reason=text, look_again_s=CONFIRM_S)
    stops = max(wanted, current) > Level.WARN and wanted != current
    if stops and not _confirmed(budget, readings, wanted):
        return Decision(level=current, reason=f"{text}; to be confirmed", look_again_s=CONFIRM_S)
    # The highest of the last readings: a month's spending does not fall.
    waits = [seconds_to_limit(budget, one) for one in readings if one.complete]
    again = min(waits) if part < 1 else math.inf
    if len(readings) < 2 or not plausible(*readings[-2:]):
        again = CONFIRM_S  # This reading may be wrong, and the limit near.
    return Decision(level=wanted, reason=text, look_again_s=again)


def _wanted(budget: Budget, reading: Reading) -> Level:
    part = used(budget, reading)
    if part >= 1:
        return budget.action
    return Level.WARN if part >= budget.warn_at else Level.NONE


def _confirmed(budget: Budget, readings: Sequence[Reading], wanted: Level) -> bool:
    """Whether the reading before says the same, and both are plausible."""
    if len(readings) < 2:
        return False
    before, last = readings[-2:]
    return before.complete and _wanted(budget, before) == wanted and plausible(before, last)


def parse_budgets(found: Sequence[Mapping[str, Any]]) -> list[Budget]:
    """Return budgets in the form of `infra.config.arguments.budgets`. Raises KeyError, TypeError, ValueError."""
    return [
        Budget(
            team=str(one["team"]),
            usd_per_month=one["usdPerMonth"],
            gpu_hours_per_month=one["gpuHoursPerMonth"],
            warn_at=float(one["warnAt"]),
            action=Level[str(one["action"]).upper()],
            spot_flavors=tuple(one["spotFlavors"]),
            usual_priority=int(one["usualPriority"]),
        )
        for one in found
    ]
