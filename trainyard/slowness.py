"""Which rank or loader slows a gang down, from every rank's own work in the same steps.

A rank is named when it stands out in most of several windows in a row, in the lower quartile of its steps as
well as in their mean: noise makes single steps longer, not shorter.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from trainyard.culprits import NO_RANK, SLOW_LOADER, SLOW_RANK, Culprit
from trainyard.watchdog import Report

SLOW: Final = 1.15
"""Work of a slow rank, as a multiple of the others'."""
LOADER: Final = 0.15
"""Share of a rank's own time in a step that a slow loader takes."""
_WINDOWS: Final = 5
"""Windows that are looked at together."""
_NEEDED: Final = 4
"""Windows of them in which the rank must stand out."""
_STEPS: Final = 8
"""Steps of a window at least."""
_WINDOW_S: Final = 4.0

_Work = Mapping[int, Mapping[int, tuple[float, float]]]
"""Seconds of own work and of waiting for samples, by rank and step."""
Slow = tuple[str, int, str, tuple[str, ...]]
"""Symptom, rank, what it does, evidence."""


class SlowRanks:
    """Judges windows of steps, one after the other."""

    def __init__(self, window_s: float = _WINDOW_S) -> None:
        self._window_s, self._closed, self._judged = window_s, time.monotonic(), 0
        self._windows: deque[Slow | None] = deque(maxlen=_WINDOWS)

    def judge(self, reports: Mapping[int, Report]) -> list[Culprit]:
        """Return whom the newest steps show for long enough."""
        now = time.monotonic()
        common = set.intersection(*(set(report.work) for report in reports.values()))
        steps = sorted(step for step in common if step > self._judged)
        if len(steps) < _STEPS or now - self._closed < self._window_s:
            return []
        self._judged, self._closed = steps[-1], now
        found = find({rank: report.work for rank, report in reports.items()}, steps)
        self._windows.append(found)
        same = [one for one in self._windows if one and found and one[:2] == found[:2]]
        if found is None or len(same) < _NEEDED:
            return []
        symptom, rank, what, evidence = found
        one = reports[max(rank, 0)]
        named = Culprit(
            symptom=symptom,
            rank=rank,
            node=one.node if rank != NO_RANK else "",
            pod=one.pod if rank != NO_RANK else "",
            step=one.number or one.steps,
            attempt=one.attempt,
            time=time.time(),
            what=what,
            evidence=evidence,
        )
        return [named]


def find(work: _Work, steps: Sequence[int]) -> Slow | None:
    """Return who stands out in these steps; None: nobody."""
    return _slow_loader(work, steps) or (_slow_rank(work, steps) if len(work) > 1 else None)


def _slow_loader(work: _Work, steps: Sequence[int]) -> Slow | None:
    shares = {}
    for rank, of_rank in work.items():
        waited = statistics.fmean(of_rank[step][1] for step in steps)
        own = waited + statistics.median(of_rank[step][0] for step in steps)
        shares[rank] = waited / own if own else 0.0
    slow = [rank for rank, share in shares.items() if share > LOADER]
    if not slow:
        return None
    if len(slow) == len(work) > 1:
        lowest = min(shares.values())
        what = f"all ranks wait for samples, at least {lowest:.0%} of their own time"
        return SLOW_LOADER, NO_RANK, what, ()
    worst = max(slow, key=lambda rank: shares[rank])
    most = max((share for rank, share in shares.items() if rank not in slow), default=0.0)
    what = f"waits for samples {shares[worst]:.0%} of its own time"
    return SLOW_LOADER, worst, what, (f"{len(work) - len(slow)} other ranks: at most {most:.0%}",)


def _slow_rank(work: _Work, steps: Sequence[int]) -> Slow | None:
    worked = {rank: [of_rank[step][0] for step in steps] for rank, of_rank in work.items()}
    quick = {rank: statistics.quantiles(found, n=4)[0] for rank, found in worked.items()}
    mean = {rank: statistics.fmean(found) for rank, found in worked.items()}
    worst = max(quick, key=lambda rank: quick[rank])
    usual = statistics.median(quick[rank] for rank in quick if rank != worst)
    typical = statistics.median(mean[rank] for rank in mean if rank != worst)
    if not usual or quick[worst] < SLOW * usual or mean[worst] < SLOW * typical:
        return None
    what = f"works {quick[worst] / usual:.2f} times as long as the others in each step"
    evidence = f"works {1000 * quick[worst]:.1f} ms in a step, the others {1000 * usual:.1f} ms"
    return SLOW_RANK, worst, what, (evidence,)
