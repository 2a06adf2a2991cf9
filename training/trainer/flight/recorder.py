"""What the training thread writes down: the beginning of each phase, and how long its steps waited.

A mark costs about a microsecond and takes no lock. Other threads read the attributes of the newest mark.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from training.trainer.flight.ring import Phase, Ring

_WARM_UP: Final = 3
"""Steps that take longer than later ones: they compile, connect and allocate."""
_FADING: Final = 0.999
"""Makes a single long time count half as much after 700 shorter ones of the same phase."""
_RENEWED_NS: Final = 500_000_000
"""Between two marks of a phase that goes on: the ring keeps those of steps, too."""
_STEPS_KEPT: Final = 4096
"""Steps that are kept until a window of shares is closed."""


@dataclass(frozen=True)
class StepTimes:
    """One step of this rank, in seconds."""

    step: int
    total: float
    loader: float
    """Waiting for samples."""
    worked: float
    """What the rank did itself."""

    @property
    def waited(self) -> float:
        """The rest: waiting for other ranks, or for a processor."""
        return max(0.0, self.total - self.loader - self.worked)


def _nothing() -> int:
    return 0


class Recorder:
    """Marks of one rank."""

    def __init__(self, ring: Ring | None = None) -> None:
        """Without a ring the marks are in memory only."""
        self._ring = ring
        self.issued: Callable[[], int] = _nothing
        """Returns how many collectives this rank has issued; in an elastic run, exchanges with other groups."""
        self.inside: Callable[[], int] = _nothing
        """Returns how many collectives it has issued inside its group of an elastic run."""
        self.exchanges = 0
        """Exchanges with other ranks, of steps and of comparisons, that this rank has entered since `restart`."""
        self.step = 0
        self.starting = True
        """Until the first step is done: ranks load and compile."""
        self.phase: int = Phase.STARTUP
        self.since_ns = time.monotonic_ns()
        self.marks = 0
        self.longest: dict[int, float] = {}
        """The longest recent time in each phase that was left at least once, in nanoseconds."""
        self._warm_up = _WARM_UP
        self.steps: deque[StepTimes] = deque(maxlen=_STEPS_KEPT)

    def enter(self, phase: int, step: int | None = None) -> None:
        """Mark the beginning of a phase, which ends the one before."""
        now = time.monotonic_ns()
        before, lasted = self.longest.get(self.phase, 0.0) * _FADING, now - self.since_ns
        self.longest[self.phase] = before if before > lasted else lasted
        if step is not None:
            self.step = step
            if self._warm_up:
                self._warm_up -= 1
                self.longest.clear()
        if phase in (Phase.AGREE, Phase.COMPARE):
            self.exchanges += 1
        self.phase, self.since_ns = phase, now
        self.marks += 1
        if self._ring:
            self._ring.mark(now, self.step, phase, self.issued(), self.inside())

    def renew(self) -> None:
        """Mark the phase again, twice a second at most: this rank waits for a limited time, and does not hang.

        Not for exchanges, which are counted by their marks.
        """
        if time.monotonic_ns() - self.since_ns >= _RENEWED_NS:
            self.enter(self.phase)

    def restart(self) -> None:
        """Count exchanges anew: other ranks than before take part."""
        self.exchanges = 0
        self.enter(Phase.STARTUP)

    def add_step(self, times: StepTimes) -> None:
        """Keep the times of a completed step."""
        self.steps.append(times)

    def take_steps(self) -> list[StepTimes]:
        """Return the steps since the last call; for one other thread."""
        found = []
        while self.steps:
            found.append(self.steps.popleft())
        return found

    def close(self) -> None:
        """Remove the ring: the rank has ended in order."""
        if self._ring:
            self._ring.remove()
