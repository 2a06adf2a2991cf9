"""The cheapest way through a trace for who knows all of it: exact dynamic programming, backwards over the ticks.

A state is the seconds of work and restart left, and what is held. A start adds the restart to what is left. A
start that is lost before its restart ends is never part of an optimum, since waiting instead costs less and leaves
the same work, so nothing else must be known of a restart in progress. Seconds are counted in the greatest common
divisor of tick, restart, work and deadline: nothing is rounded.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bench.spot.replay import SPOT_SHARE, Job
from bench.spot.traces import Trace

Costs = NDArray[np.float64]


def cheapest(trace: Trace, job: Job, share: float = SPOT_SHARE) -> float:
    """Return the least cost, in on-demand node-seconds; infinite where no choice ends in time."""
    unit = math.gcd(trace.gap_s, job.restart_s, job.work_s, job.end_s)
    gap, restart = trace.gap_s // unit, job.restart_s // unit
    work, end = job.work_s // unit, job.end_s // unit
    ticks = -(-end // gap)
    size = work + restart + 1
    done = np.full(size, np.inf)
    done[0] = 0.0
    modes: list[str | None] = [None, "", *trace.zones]
    after = [done.copy() for _ in modes]
    for tick in reversed(range(ticks)):
        room = min(gap, end - tick * gap)
        # Only states from the least that can be left to the most that can still end in time.
        high = min(size, end - tick * gap + 1)
        low = max(0, work - tick * gap)
        running = []
        for index, mode in enumerate(modes):
            there = _there(trace, mode, job.start + tick)
            running.append(
                _run(after[index], low, high, room, _price(mode, share)) if there else None
            )
        started = _cheapest_start(running, low, high, restart)
        idle = after[0][low:high]
        for index in range(len(modes)):
            best = np.minimum(idle, started)
            held = running[index]
            if held is not None and index:
                best = np.minimum(best, held)
            after[index] = _placed(best, low, high, size)
    return float(after[0][work]) * unit


def _there(trace: Trace, mode: str | None, tick: int) -> bool:
    if mode is None:
        return False
    return not mode or (tick < len(trace.zones[mode]) and trace.zones[mode][tick])


def _price(mode: str | None, share: float) -> float:
    return share if mode else 1.0


def _run(after: Costs, low: int, high: int, room: int, price: float) -> Costs:
    """Cost from states low..high if this is held for the tick."""
    left = np.arange(low, high)
    found: Costs = price * np.minimum(left, room) + after[np.maximum(left - room, 0)]
    return found


def _cheapest_start(running: list[Costs | None], low: int, high: int, restart: int) -> Costs:
    """Cost from states low..high if the cheapest of all is started, which adds the restart."""
    found = np.full(high - low, np.inf)
    for one in running:
        if one is not None and restart < high - low:
            found[: high - low - restart] = np.minimum(found[: high - low - restart], one[restart:])
    return found


def _placed(values: Costs, low: int, high: int, size: int) -> Costs:
    whole = np.full(size, np.inf)
    whole[low:high] = values
    whole[0] = 0.0
    return whole
