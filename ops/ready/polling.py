"""Waiting for a cluster: look, rest, look again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from ops.cluster import UnreachableError

POLL_S: Final = 1.0
UNREACHABLE_S: Final = 60.0
"""An API server that does not answer for so long is gone; one that is updated or moved is back before."""
T = TypeVar("T")


def sleep() -> None:
    time.sleep(POLL_S)


@dataclass(frozen=True, kw_only=True)
class Poller:
    """How long to wait for one thing, and what to do meanwhile."""

    limit_s: float
    pause: Callable[[], None] = sleep
    """Called between two looks."""
    clock: Callable[[], float] = time.monotonic
    """Seconds that only grow."""

    def wait_for(self, found: Callable[[], T | None]) -> T | None:
        """The first answer that is not None; None when there was none within the limit.

        Raises UnreachableError for a cluster that is silent for a minute, or when the time is over.
        """
        end = self.clock() + self.limit_s
        answered = self.clock()
        while True:
            value = None
            try:
                value = found()
                answered = self.clock()
            except UnreachableError:
                if self.clock() >= min(end, answered + UNREACHABLE_S):
                    raise
            if value is not None or self.clock() >= end:
                return value
            with contextlib.suppress(UnreachableError):
                self.pause()
