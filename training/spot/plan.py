"""How much slack makes it worth waiting for spot, by dynamic programming over a two-state market.

The market is a Markov chain: the held capacity is lost at rate `lost`, a market without capacity has it again at
rate `back`. A run has work left and slack: the time to its deadline less work and pending restart. Running uses up
work, waiting and restarts use up slack, so each state depends on states with less of either and one pass
finds the cheapest expected end. The result is four thresholds of slack per amount of work.

With known rates this is optimal in expectation. "Can't Be Late" (Wu et al., NSDI 24) shows that no policy without
look-ahead meets the optimum of every trace; its Uniform Progress needs no rates and buys on-demand time evenly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_WORK_STEPS: Final = 64
_SLACK_STEPS: Final = 64
_MISSED: Final = 100.0
"""Cost of a missed deadline, in on-demand prices of the whole work."""
_EXPONENT_MAX: Final = 50.0
_STEPS_PER_E: Final = 4
"""Rates are rounded to this many steps per factor e, so that one plan serves until they change noticeably."""

Row = list[float]


@dataclass(frozen=True, kw_only=True)
class Market:
    """Rates per second and prices that a plan is made for."""

    lost: float
    """Losses of the held capacity."""
    gone: float
    """Losses of all zones' capacity at once; at most `lost`."""
    back: float
    """Returns of capacity in any zone."""
    price_share: float
    """Spot price as a share of the on-demand price."""


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Slack in seconds from which a run takes the cheaper alternative; infinite: never."""

    wait: float
    """Without nodes and spot: wait instead of taking on-demand."""
    leave: float
    """On on-demand without spot: give the nodes back and wait."""
    move: float
    """On on-demand with spot available: restart on spot."""
    start: float
    """Without nodes, spot available: start on spot instead of on-demand."""


class Plan:
    """Thresholds for each amount of work up to that of the run."""

    def __init__(self, work_step: float, rows: list[Thresholds]) -> None:
        self._work_step, self._rows = work_step, rows

    def at(self, work_s: float) -> Thresholds:
        """Return the thresholds for this much work left."""
        index = math.ceil(work_s / self._work_step)
        return self._rows[min(max(index, 1), len(self._rows) - 1)]


def plan(work_s: float, slack_s: float, restart_s: float, market: Market) -> Plan:
    """Return the plan of a run with this much work and slack at most; all above 0 except `restart_s`."""
    rounded = [_rounded(rate) for rate in (market.lost, market.gone, market.back)]
    return _solve(work_s, slack_s, restart_s, *rounded, round(market.price_share, 2))


def _rounded(rate: float) -> float:
    return math.exp(round(_STEPS_PER_E * math.log(rate)) / _STEPS_PER_E)


@lru_cache(maxsize=2048)
def _solve(
    work_s: float, slack_s: float, restart_s: float, lost: float, gone: float, back: float, k: float
) -> Plan:
    dw, ds = work_s / _WORK_STEPS, slack_s / _SLACK_STEPS
    fail, all_gone = -math.expm1(-lost * dw), min(1.0, gone / lost)
    return_run, return_wait = -math.expm1(-back * dw), -math.expm1(-back * ds)
    vanish = -math.expm1(-gone * dw)
    missed = _MISSED * work_s
    # A restart on spot may be lost, too: the mean time until one of this length goes through.
    spot_restart = min(math.expm1(min(lost * restart_s, _EXPONENT_MAX)) / lost, work_s + slack_s)
    # Losses in a step of work beyond the first, each with its restart.
    again_s = (lost * dw - fail) * spot_restart

    def later(row: Row, s: int, seconds: float) -> float:
        """Value of a row with less slack, between two steps of it."""
        shift, part = divmod(seconds / ds, 1)
        low = s - int(shift) - 1
        if low + (part == 0) < 0:
            return missed
        above = row[low + 1]
        return above if part == 0 else above + part * (row[low] - above)

    count = _SLACK_STEPS + 1
    zero = [0.0] * count
    spot, none_up, none_down, steady_up, steady_down = zero, zero, zero, zero, zero
    rows = [Thresholds(wait=0, leave=0, move=0, start=0)]
    for _ in range(_WORK_STEPS):
        old = spot, none_up, none_down, steady_up, steady_down
        kept_spot = [
            (1 - fail) * old[0][s] + fail * ((1 - all_gone) * old[1][s] + all_gone * old[2][s])
            for s in range(count)
        ]
        spot = [k * (dw + again_s) + later(kept_spot, s, again_s) for s in range(count)]
        none_up, none_down, steady_up, steady_down = [], [], [], []
        wait, leave, move, start = 0, 0, 0, 0
        for s in range(count):
            idle = missed
            if s:
                idle = (1 - return_wait) * none_down[s - 1] + return_wait * none_up[s - 1]
            moved = k * spot_restart + later(spot, s, spot_restart)
            kept_up = dw + (1 - vanish) * old[3][s] + vanish * old[4][s]
            kept_down = dw + (1 - return_run) * old[4][s] + return_run * old[3][s]
            steady_up.append(min(kept_up, moved))
            steady_down.append(min(kept_down, idle))
            from_up = restart_s + later(steady_up, s, restart_s)
            from_down = restart_s + later(steady_down, s, restart_s)
            none_up.append(min(from_up, moved))
            none_down.append(min(from_down, idle))
            wait = wait if idle < from_down else s + 1
            leave = leave if idle < kept_down else s + 1
            move = move if moved < kept_up else s + 1
            start = start if moved < from_up else s + 1
        rows.append(
            Thresholds(
                wait=_slack(wait, ds),
                leave=_slack(leave, ds),
                move=_slack(move, ds),
                start=_slack(start, ds),
            )
        )
    return Plan(dw, rows)


def _slack(step: int, size: float) -> float:
    return step * size if step <= _SLACK_STEPS else math.inf
