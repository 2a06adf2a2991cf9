"""Decide where a gang runs next, from what is known now.

The safety net holds whatever the rates say: outside of on-demand a run always keeps the slack for one more restart
on on-demand nodes, so a deadline that these can meet is met.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from training.spot.plan import Market, plan
from training.spot.rates import Outages

PATIENCE: Final = 4.0
"""A run without a deadline is planned to end within this many times its length; waiting longer saves no more
than the discount and delays whoever needs the result."""


class Place(StrEnum):
    """Kinds of capacity; `WAIT` is none."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"
    RESERVED = "reservation"
    WAIT = "wait"


@dataclass(frozen=True, kw_only=True)
class Gang:
    """What a run needs, in seconds of its own measurements."""

    work_s: float
    """Training time of the whole run on undisturbed nodes, saves included."""
    restart_s: float
    """From the start on new nodes to the first new step: nodes, queue, image, load, and repeated steps."""
    deadline_s: float | None = None
    """From the start of the run; None: none was set."""

    @property
    def limit_s(self) -> float:
        """The deadline; without one, the time within which a run is planned to end."""
        if self.deadline_s is not None:
            return self.deadline_s
        return PATIENCE * (self.work_s + self.restart_s)


@dataclass(frozen=True, kw_only=True)
class Now:
    """The state of a gang and of its market at one moment."""

    elapsed_s: float
    work_left_s: float
    pending_s: float = 0.0
    """Rest of a restart in progress."""
    place: Place = Place.WAIT
    pool: str = ""
    """Spot pool or zone that the gang holds."""
    available: frozenset[str] = frozenset()
    """Spot pools or zones that have capacity for the whole gang."""
    reserved: bool = False
    """Whether reserved capacity, which is paid for already, is free for the gang."""
    step_s: float = 0.0
    """Until the next decision."""
    unsure_s: float = 0.0
    """How long a start on spot may take to fail, where `available` is not known but assumed; 0: it is known."""
    blind_s: float = 0.0
    """Until a pool that is not available is tried again, where only that tells whether it is back."""


@dataclass(frozen=True, kw_only=True)
class Prices:
    """USD per hour of the whole gang; None: no such capacity."""

    on_demand: float | None
    spot: Mapping[str, float] = field(default_factory=dict)
    """By pool or zone."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Where the gang goes, and why."""

    place: Place
    pool: str
    reason: str


def decide(
    gang: Gang, now: Now, prices: Prices, pools: Mapping[str, Outages], together: Outages
) -> Decision:
    """Return the next place.

    `pools`: rates by spot pool or zone; `together`: rates of their union, whose outage is one of all pools.
    """
    slack = gang.limit_s - now.elapsed_s - now.work_left_s - now.pending_s
    if now.reserved or now.place is Place.RESERVED:
        return Decision(place=Place.RESERVED, pool="", reason="reserved capacity is paid for")
    best = _best(now, prices, pools)
    if prices.on_demand is None:
        return _only_spot(now, best)
    if now.place is Place.SPOT and now.pool in now.available:
        return Decision(place=Place.SPOT, pool=now.pool, reason="spot capacity is held")
    cheapest = best or min(prices.spot, key=lambda p: prices.spot[p], default="")
    if not cheapest or prices.spot[cheapest] >= prices.on_demand:
        return Decision(place=Place.ON_DEMAND, pool="", reason="no spot pool is cheaper")
    rates = pools[cheapest]
    market = Market(
        lost=max(rates.lost, together.lost),
        gone=together.lost,
        back=together.back,
        price_share=prices.spot[cheapest] / prices.on_demand,
    )
    most = gang.limit_s - gang.work_s
    if most <= 0:
        return Decision(place=Place.ON_DEMAND, pool="", reason="no slack is left for a restart")
    bounds = plan(gang.work_s, most, gang.restart_s, market).at(now.work_left_s)
    on_demand = now.place is Place.ON_DEMAND
    # A start on spot must leave a restart on on-demand nodes, also if it fails only at its time-out.
    least = 2 * gang.restart_s + now.unsure_s
    if best:
        needed = max(bounds.move if on_demand else bounds.start, least)
        if slack + (now.pending_s if on_demand else 0) >= needed:
            return Decision(place=Place.SPOT, pool=best, reason=_enough(slack, "spot is available"))
        return Decision(place=Place.ON_DEMAND, pool="", reason=_short(slack, needed))
    # Waiting is of no use if the next try of spot would come too late.
    kept = least if now.blind_s else gang.restart_s + now.step_s
    needed = now.blind_s + max(bounds.leave if on_demand else bounds.wait, kept)
    if slack >= needed:
        return Decision(
            place=Place.WAIT, pool="", reason=_enough(slack, "spot is worth waiting for")
        )
    return Decision(place=Place.ON_DEMAND, pool="", reason=_short(slack, needed))


def _best(now: Now, prices: Prices, pools: Mapping[str, Outages]) -> str:
    """The available pool with the lowest price, then the longest expected time to a loss."""
    return min(
        sorted(now.available), key=lambda p: (round(prices.spot[p], 4), pools[p].lost), default=""
    )


def _only_spot(now: Now, best: str) -> Decision:
    if now.place is Place.SPOT and now.pool in now.available:
        best = now.pool
    place = Place.SPOT if best else Place.WAIT
    return Decision(place=place, pool=best, reason="the run has no on-demand pool")


def _enough(slack: float, what: str) -> str:
    return f"{what} and {slack / 3600:.1f} h of slack cover its risk"


def _short(slack: float, needed: float) -> str:
    if math.isinf(needed):
        return "spot is lost too often to pay for its restarts"
    return (
        f"{slack / 3600:.1f} h of slack are below the {needed / 3600:.1f} h that spot requires here"
    )


def best_interval_s(save_s: float, losses_per_hour: float) -> float:
    """Interval between checkpoints that minimizes lost time, in seconds; infinite without losses.

    Young's first-order optimum (CACM 17(9), 1974); Daly (FGCS 22(3), 2006) adds terms that matter only where a
    save takes a large part of the time between losses.
    """
    return math.sqrt(2 * save_s * 3600 / losses_per_hour) if losses_per_hour else math.inf
