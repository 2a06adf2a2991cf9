"""Which rank or loader slows a gang down, from every rank's part in the same steps. Pure.

All ranks of a step end it together, so its duration says nothing about one of them. What differs is what a rank
did by itself: the slow one works longest and waits least. A rank is named when it stands out in most of several
windows in a row, in the lower quartile of its steps as well as in their mean: noise makes single steps longer,
not shorter.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from training.trainer.flight.recorder import StepTimes
from trainyard.culprits import NO_RANK, SLOW_LOADER, SLOW_RANK

SLOW: Final = 1.15
"""Work of a slow rank, as a multiple of the others'."""
LOADER: Final = 0.15
"""Share of a rank's own time in a step, without waits for others, that a slow loader takes."""
WINDOWS: Final = 5
"""Windows that are looked at together."""
NEEDED: Final = 4
"""Windows of them in which the rank must stand out."""
STEPS_NEEDED: Final = 8
"""Steps of a window that all ranks must have reported."""
_STEPS_KEPT: Final = 128
"""Steps in a report; of more, every second, fourth ... step is kept, the same ones on every rank."""


@dataclass(frozen=True)
class Window:
    """A rank's part in recent steps."""

    steps: Mapping[int, tuple[float, float, float]]
    """By step, in seconds: worked, waited for samples, waited for other ranks."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Window:
        """Return the window in a report. Raises KeyError, TypeError, ValueError."""
        steps = {int(n): (float(a), float(b), float(c)) for n, (a, b, c) in values["steps"].items()}
        return cls(steps)


@dataclass(frozen=True, kw_only=True)
class Slowness:
    """A rank that slows the others down, by one window or by several."""

    symptom: str
    rank: int
    """NO_RANK: all of them."""
    ratio: float
    """Work as a multiple of the others', or the loader's share of the step time."""
    what: str
    """What the rank does, in one clause."""
    evidence: tuple[str, ...] = ()


def window_of(steps: Iterable[StepTimes]) -> Window:
    """Return what a rank reports of these steps."""
    chosen, every = list(steps), 1
    while len(chosen) > _STEPS_KEPT:
        every *= 2
        chosen = [one for one in chosen if one.step % every == 0]
    found = {s.step: (round(s.worked, 6), round(s.loader, 6), round(s.waited, 6)) for s in chosen}
    return Window(found)


def compare(windows: Mapping[int, Window], after: int) -> tuple[list[Slowness], int]:
    """Return who stands out in the steps after `after` that all ranks report, and the last of these steps.

    0 instead of a step: too few of them.
    """
    common = set.intersection(*(set(window.steps) for window in windows.values()))
    steps = sorted(step for step in common if step > after)
    if len(steps) < STEPS_NEEDED:
        return [], 0
    found = _slow_loaders(windows, steps)
    if not found and len(windows) > 1:
        found = _slow_ranks(windows, steps)
    return found, steps[-1]


def _slow_loaders(windows: Mapping[int, Window], steps: Sequence[int]) -> list[Slowness]:
    shares = {}
    for rank, window in windows.items():
        parts = [window.steps[step] for step in steps]
        loader = statistics.fmean(loader for _, loader, _ in parts)
        own = loader + statistics.median(worked for worked, _, _ in parts)
        shares[rank] = loader / own if own else 0.0
    slow = [rank for rank, share in shares.items() if share > LOADER]
    if not slow:
        return []
    worst = max(slow, key=lambda rank: shares[rank])
    if len(slow) == len(windows) > 1:
        lowest = min(shares.values())
        what = f"all ranks wait for samples, at least {lowest:.0%} of their own time"
        return [Slowness(symptom=SLOW_LOADER, rank=NO_RANK, ratio=lowest, what=what)]
    others = [share for rank, share in shares.items() if rank not in slow]
    return [
        Slowness(
            symptom=SLOW_LOADER,
            rank=worst,
            ratio=shares[worst],
            what=f"waits for samples {shares[worst]:.0%} of its own time",
            evidence=(f"{len(others)} other ranks: at most {max(others):.0%}",) if others else (),
        )
    ]


def _slow_ranks(windows: Mapping[int, Window], steps: Sequence[int]) -> list[Slowness]:
    quick, mean, waits = {}, {}, {}
    for rank, window in windows.items():
        worked = [window.steps[step][0] for step in steps]
        quick[rank] = statistics.quantiles(worked, n=4)[0]
        mean[rank] = statistics.fmean(worked)
        waits[rank] = statistics.fmean(window.steps[step][2] for step in steps)
    worst = max(windows, key=lambda rank: quick[rank])
    usual = statistics.median(quick[rank] for rank in windows if rank != worst)
    typical = statistics.median(mean[rank] for rank in windows if rank != worst)
    if quick[worst] < SLOW * usual or mean[worst] < SLOW * typical:
        return []
    others = [rank for rank in windows if rank != worst]
    ratio = quick[worst] / usual if usual else 0.0
    texts = (
        f"works {1000 * quick[worst]:.1f} ms in a step, the others {1000 * usual:.1f} ms",
        f"waits {1000 * waits[worst]:.1f} ms in a step for the others, they"
        f" {1000 * statistics.median(waits[rank] for rank in others):.1f} ms",
    )
    what = f"works {ratio:.2f} times as long as the others in each step"
    return [Slowness(symptom=SLOW_RANK, rank=worst, ratio=ratio, what=what, evidence=texts)]


@dataclass
class History:
    """The last windows: what lasts is named, what passes is not."""

    windows: deque[list[Slowness]] = field(default_factory=lambda: deque(maxlen=WINDOWS))

    def add(self, found: list[Slowness]) -> list[Slowness]:
        """Add a window; return who stood out in enough of them, as the last of these shows it."""
        self.windows.append(found)
        seen: dict[tuple[str, int], list[Slowness]] = {}
        for window in self.windows:
            for one in window:
                seen.setdefault((one.symptom, one.rank), []).append(one)
        return [times[-1] for times in seen.values() if len(times) >= NEEDED and times[-1] in found]
