"""Spot or on-demand: what a run is expected to take and to cost on each, pure arithmetic.

A gang stops when any of its nodes is taken, so interruptions come at `nodes x rate`. After a notice nothing but
the restart is lost; without one, half a checkpoint interval on average as well (Young, "A first order
approximation to the optimum checkpoint interval", CACM 17(9), 1974). Waiting for capacity is not counted: no
rate of interruptions tells how long a market is empty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

_LATE: Final = 1.645
"""Standard deviations below which 95 % of a normal distribution lies; counts of interruptions are near one."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """A run, as far as time and money go."""

    hours: float
    """Of training, without any interruption and without checkpoints."""
    nodes: int
    save_s: float
    """For how long a checkpoint holds up the training, at most."""
    checkpoint_every_s: float
    deadline_h: float | None = None
    """Hours from now; None: whenever it is done."""


@dataclass(frozen=True, kw_only=True)
class Market:
    """What befalls spot capacity."""

    interruptions_per_node_hour: float
    noticed: float
    """Share of interruptions, 0 to 1, whose notice is long enough for a checkpoint."""
    restart_s: float
    """From an interruption to the next step, capacity at hand."""


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """A run on one kind of capacity."""

    hours: float
    """Expected; infinite where interruptions outrun progress."""
    late_hours: float
    """Nineteen runs of twenty take no longer."""
    usd: float | None
    """Expected; None: no price is known."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What to choose, and why."""

    capacity: str
    """`spot` or `on-demand`."""
    reason: str
    spot: Outlook
    on_demand: Outlook
    best_checkpoint_every_s: float
    """The interval that loses least on spot; infinite where nothing but restarts is lost."""


def advise(
    work: Work, market: Market, spot_usd_hour: float | None, on_demand_usd_hour: float | None
) -> Advice:
    """Compare both. Prices are of the whole run an hour; None: no such capacity, or no known price."""
    steady = _outlook(_undisturbed(work), _undisturbed(work), on_demand_usd_hour)
    spot = _on_spot(work, market, spot_usd_hour)
    capacity, reason = _choice(work, spot, steady)
    return Advice(
        capacity=capacity,
        reason=reason,
        spot=spot,
        on_demand=steady,
        best_checkpoint_every_s=_best_interval(work, market),
    )


def _undisturbed(work: Work) -> float:
    return work.hours * (1 + work.save_s / work.checkpoint_every_s)


def _outlook(hours: float, late: float, usd_hour: float | None) -> Outlook:
    usd = None if usd_hour is None or math.isinf(hours) else hours * usd_hour
    return Outlook(hours=hours, late_hours=late, usd=usd)


def _on_spot(work: Work, market: Market, usd_hour: float | None) -> Outlook:
    """Interruptions come as a Poisson process over the whole time, repeated work included."""
    rate = work.nodes * market.interruptions_per_node_hour
    lost_s = market.restart_s + (1 - market.noticed) * work.checkpoint_every_s / 2
    lost = lost_s / 3600
    progress = 1 - rate * lost
    if progress <= 0:
        return _outlook(math.inf, math.inf, usd_hour)
    base = _undisturbed(work)
    # late = base + (rate late + 1.645 sqrt(rate late)) lost, solved for the root of late.
    spread = _LATE * lost * math.sqrt(rate)
    root = (spread + math.sqrt(spread**2 + 4 * progress * base)) / (2 * progress)
    return _outlook(base / progress, root**2, usd_hour)


def _best_interval(work: Work, market: Market) -> float:
    unnoticed = work.nodes * market.interruptions_per_node_hour * (1 - market.noticed) / 3600
    return math.sqrt(2 * work.save_s / unnoticed) if unnoticed else math.inf


def _choice(work: Work, spot: Outlook, steady: Outlook) -> tuple[str, str]:
    if math.isinf(spot.hours):
        return "on-demand", "interruptions would come faster than the run recovers from them"
    deadline = work.deadline_h
    if deadline is not None and spot.late_hours > deadline:
        if steady.hours > deadline:
            return "on-demand", f"even it misses the deadline of {deadline:g} h; ask for more nodes"
        return "on-demand", f"one spot run of twenty takes longer than the {deadline:g} h there are"
    if spot.usd is None or steady.usd is None:
        missing = "spot" if spot.usd is None else "on-demand"
        other = "on-demand" if spot.usd is None else "spot"
        return other, f"no {missing} pool that the run may use has a known price"
    if spot.usd >= steady.usd:
        return "on-demand", "the work that spot repeats costs more than its discount"
    return "spot", f"it is expected to cost {1 - spot.usd / steady.usd:.0%} less"
