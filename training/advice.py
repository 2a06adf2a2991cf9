"""Expected duration and cost of a run on spot and on-demand capacity, as pure arithmetic.

A gang stops when any of its nodes is reclaimed, so interruptions arrive at `nodes x rate`. After a notice only the
restart is lost; without one, half a checkpoint interval on average as well (Young, "A first order approximation to
the optimum checkpoint interval", CACM 17(9), 1974). Waiting for capacity is not included: it does not follow from
the rate of interruptions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from infra.domain.catalog.interruptions import relative_frequency
from infra.domain.pools import Capacity, NodePool
from trainer.config.settings import TrainerConfig
from training.spec import RunSpec
from training.spot.decide import best_interval_s
from training.spot.rates import INTERRUPTIONS_PER_NODE_HOUR, NOTICED

_SELDOM: Final = 2.0
"""Times the best interval from which a run is warned: its losses cost four times what its saves do."""
_LATE: Final = 1.645
"""Standard deviations below which 95 % of a normal distribution lies; counts of interruptions are near one."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a run computes, and its checkpoints."""

    hours: float
    """Training time in hours without interruptions and checkpoints."""
    nodes: int
    save_s: float
    """Longest pause of the training for a checkpoint, in seconds."""
    checkpoint_every_s: float
    deadline_h: float | None = None
    """Hours from now; None: no deadline."""


@dataclass(frozen=True, kw_only=True)
class Market:
    """Interruptions of spot capacity."""

    interruptions_per_node_hour: float
    noticed: float
    """Share of interruptions, 0 to 1, whose notice is long enough for a checkpoint."""
    restart_s: float
    """Seconds from an interruption to the next step, with capacity available."""


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """A run on one kind of capacity."""

    hours: float
    """Expected hours; infinite where interruptions exceed progress."""
    late_hours: float
    """95th percentile of the hours."""
    usd: float | None
    """Expected; None: no price is known."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """Recommended capacity with its reason."""

    capacity: str
    """`spot` or `on-demand`."""
    reason: str
    spot: Outlook
    on_demand: Outlook
    best_checkpoint_every_s: float
    """Interval that minimizes lost work on spot; infinite where only restarts are lost."""


def advise(
    work: Work, market: Market, spot_usd_hour: float | None, on_demand_usd_hour: float | None
) -> Advice:
    """Compare both. Prices are USD per hour of the whole run; None: no such capacity, or unknown price."""
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


def interruptions(pools: Sequence[NodePool]) -> tuple[float, str]:
    """Return the interruptions per node and hour that are assumed of spot pools, and where the rate comes from.

    Of several pools the highest, as of prices.
    """
    found = [(band, name, pool) for pool in pools for name, band in pool.interruptions.items()]
    if not found:
        return INTERRUPTIONS_PER_NODE_HOUR, "assumed: no spot pool fits"
    band, name, pool = max(found, key=lambda one: relative_frequency(one[0]))
    origin = f"assumed: AWS' Spot Instance Advisor does not list {name} in {pool.region}"
    if band:
        origin = (
            f"assumed from AWS' Spot Instance Advisor: {band} of {name} in {pool.region} a month"
        )
    return INTERRUPTIONS_PER_NODE_HOUR * relative_frequency(band), origin


def longest_interval_s(config: TrainerConfig, hours: float | None) -> float | None:
    """Return the longest time between two saves in seconds; None: by steps, and how long they take is not known.

    `hours`: of all steps; None: not known.
    """
    saves = config.checkpoint
    found = [] if saves.interval_s is None else [saves.interval_s]
    if saves.every_steps is not None and hours is not None:
        found.append(min(saves.every_steps / config.steps, 1) * hours * 3600)
    return min(found, default=None)


def interval_warnings(
    run: RunSpec, config: TrainerConfig, pools: Sequence[NodePool]
) -> Iterator[str]:
    """Yield a line if a gang may save so seldom that losses on spot cost clearly more than saves would.

    `pools`: those that the run may be admitted to.
    """
    spot = [pool for pool in pools if pool.capacity is Capacity.SPOT]
    interval = longest_interval_s(config, run.max_hours)
    if not spot or run.groups or interval is None:
        return
    unnoticed = run.nodes * interruptions(spot)[0] * (1 - NOTICED)
    best = best_interval_s(run.save_seconds, unnoticed)
    if interval > _SELDOM * best:
        repeated = unnoticed * interval / 7200
        yield (
            f"checkpoint: saves may be {interval:.0f} s apart, so that on spot {repeated:.1%} of the run is"
            f" expected to be repeated; every {best:.0f} s loses least; set every_seconds: {best:.0f}"
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
    unnoticed = work.nodes * market.interruptions_per_node_hour * (1 - market.noticed)
    return best_interval_s(work.save_s, unnoticed)


def _choice(work: Work, spot: Outlook, steady: Outlook) -> tuple[str, str]:
    if math.isinf(spot.hours):
        return "on-demand", "interruptions arrive faster than the run recovers from them"
    deadline = work.deadline_h
    if deadline is not None and spot.late_hours > deadline:
        if steady.hours > deadline:
            return "on-demand", f"it also misses the deadline of {deadline:g} h; request more nodes"
        return "on-demand", f"1 of 20 spot runs takes longer than the deadline of {deadline:g} h"
    if spot.usd is None or steady.usd is None:
        missing = "spot" if spot.usd is None else "on-demand"
        other = "on-demand" if spot.usd is None else "spot"
        return other, f"no eligible {missing} pool has a known price"
    if spot.usd >= steady.usd:
        return "on-demand", "work repeated on spot costs more than its discount saves"
    return "spot", f"it is expected to cost {1 - spot.usd / steady.usd:.0%} less"
