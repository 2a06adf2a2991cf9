"""How the rank is named that others wait for, or that slows them down: from every rank's report to a verdict.

*Hung:* of ranks that all stand still, the one that does not answer, has made fewer steps, is in an earlier phase,
has issued fewer collectives, or waits for none, in this order. If no rule tells ranks apart, none is named.

*Slow:* the rank, or the loader, that stands out in most of several windows in a row, in the lower quartile of its
steps as well as in their mean: noise makes single steps longer, not shorter.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from trainyard.culprits import HUNG, NO_RANK, SLOW_LOADER, SLOW_RANK, Culprit
from trainyard.watchdog import DATA, STEP, Report

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
_ORDER: Final = {DATA: 1, STEP: 2}
"""Phases in the order of a step; all others come between two steps."""

Reports = Mapping[int, Report]
"""By rank."""
_Work = Mapping[int, Mapping[int, tuple[float, float]]]
"""Seconds of own work and of waiting for samples, by rank and step."""
Slow = tuple[str, int, str, tuple[str, ...]]
"""Symptom, rank, what it does, evidence."""


@dataclass(frozen=True)
class Silence:
    """A rank that reports nothing, as its own node sees it."""

    seconds: float
    text: str = "nor does its node"
    """State of its process."""
    busy: bool = False
    """Whether it uses the processor."""
    frame: str = ""
    """Innermost frame of its main thread; empty: not known."""


def hung_rank(reports: Reports, silent: Mapping[int, Silence], place: object) -> Culprit:
    """Return the verdict on ranks that have all been where they are for too long.

    `silent`: those that report nothing; `place`: of the stacks and collectives of all ranks.
    """
    ranks = sorted(silent) or behind(reports)
    evidence = [*_others(reports, ranks), *_collectives(reports, ranks), *_more(reports, ranks)]
    step = max(report.number or report.steps for report in reports.values())
    frame = ""
    if not ranks:
        what = "all ranks wait, and none is behind the others, for"
        what, step = f"{what} {reports[0].since_s:.0f} s", reports[0].last_step
    elif seen := silent.get(ranks[0]):
        what, frame = f"does not answer for {seen.seconds:.0f} s", seen.frame
        evidence.insert(0, seen.text)
    else:
        one = reports[ranks[0]]
        where = {STEP: "a step", DATA: "the loader"}.get(one.phase, f"phase {one.phase}")
        what, step = f"does not leave {where} for {one.since_s:.0f} s", one.last_step
        frame = one.frames[-1] if one.frames else ""
    evidence.append(f"stacks and collectives of all ranks: {place}")
    attempt = max(report.attempt for report in reports.values())
    rank = ranks[0] if ranks else NO_RANK
    return _culprit(HUNG, rank, reports, step, attempt, what, evidence, frame)


def _culprit(
    symptom: str,
    rank: int,
    reports: Reports,
    step: int,
    attempt: int,
    what: str,
    evidence: Sequence[str],
    frame: str = "",
) -> Culprit:
    named = reports.get(rank)
    return Culprit(
        symptom=symptom,
        rank=rank,
        node=named.node if named else "",
        pod=named.pod if named else "",
        step=step,
        attempt=attempt,
        time=time.time(),
        what=what,
        evidence=tuple(evidence),
        frame=frame,
    )


def behind(reports: Reports) -> list[int]:
    """Return the ranks that the others wait for; none if all have come equally far."""

    def narrowed(ranks: list[int], fewer: list[int]) -> list[int]:
        return fewer if fewer and len(fewer) < len(ranks) else ranks

    def place(rank: int) -> tuple[int, int]:
        return reports[rank].steps, _ORDER.get(reports[rank].phase, 0)

    most = _most_issued(reports)
    ranks = sorted(reports)
    lowest = min(map(place, ranks))
    found = narrowed(ranks, [rank for rank in ranks if place(rank) == lowest])
    late = [
        rank for rank in found if any(n < most[group] for group, n in reports[rank].issued.items())
    ]
    found = narrowed(found, late)
    found = narrowed(found, [rank for rank in found if not reports[rank].waiting])
    return found if len(found) < len(reports) or len(reports) == 1 else []


def _most_issued(reports: Reports) -> dict[str, int]:
    """Return how many collectives any rank has issued in each process group."""
    most: dict[str, int] = {}
    for report in reports.values():
        for group, number in report.issued.items():
            most[group] = max(number, most.get(group, 0))
    return most


def _others(reports: Reports, ranks: Sequence[int]) -> list[str]:
    others = [report for rank, report in reports.items() if rank not in ranks]
    frames = [report.frames[-1] for report in others if report.frames]
    if not frames:
        return []
    usual = max(set(frames), key=frames.count)
    return [f"{frames.count(usual)} of {len(others)} other ranks are in {usual}"]


def _collectives(reports: Reports, ranks: Sequence[int]) -> list[str]:
    most = _most_issued(reports)
    issued = reports[ranks[0]].issued if ranks else {}
    found = [
        f"it has issued {number} collectives of group {group}, others {most[group]}"
        for group, number in issued.items()
        if number < most[group]
    ]
    return found[:2]


def _more(reports: Reports, ranks: Sequence[int]) -> list[str]:
    named = [f"{rank} on {reports[rank].node}" for rank in ranks[1:5]]
    return [f"so far behind are also ranks {', '.join(named)}"] if named else []


class SlowRanks:
    def __init__(self, window_s: float = _WINDOW_S) -> None:
        self._window_s, self._closed, self._judged = window_s, time.monotonic(), 0
        self._windows: deque[Slow | None] = deque(maxlen=_WINDOWS)

    def judge(self, reports: Reports) -> list[Culprit]:
        """Return whom the newest steps show for long enough."""
        now = time.monotonic()
        common = set.intersection(*(set(report.work) for report in reports.values()))
        steps = sorted(step for step in common if step > self._judged)
        if len(steps) < _STEPS or now - self._closed < self._window_s:
            return []
        self._judged, self._closed = steps[-1], now
        found = slow_rank({rank: report.work for rank, report in reports.items()}, steps)
        self._windows.append(found)
        same = [one for one in self._windows if one and found and one[:2] == found[:2]]
        if found is None or len(same) < _NEEDED:
            return []
        symptom, rank, what, evidence = found
        one = reports[max(rank, 0)]
        return [_culprit(symptom, rank, reports, one.last_step, one.attempt, what, evidence)]


def slow_rank(work: _Work, steps: Sequence[int]) -> Slow | None:
    """Return who stands out in these steps; None: nobody."""
    return _slow_loader(work, steps) or (_slowest(work, steps) if len(work) > 1 else None)


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


def _slowest(work: _Work, steps: Sequence[int]) -> Slow | None:
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
