"""Poll the cluster until a condition holds."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from ops.cluster import UnreachableError

POLL_S: Final = 1.0
UNREACHABLE_S: Final = 60.0
"""Give up on an API server after this time without an answer; an update or failover is shorter."""
T = TypeVar("T")


def sleep() -> None:
    time.sleep(POLL_S)


@dataclass(frozen=True, kw_only=True)
class Poller:
    """Time limit of a wait, and what to do between polls."""

    limit_s: float
    pause: Callable[[], None] = sleep
    """Called between polls."""
    clock: Callable[[], float] = time.monotonic
    """Monotonic clock in seconds."""

    def wait_for(self, found: Callable[[], T | None]) -> T | None:
        """Return the first result that is not None, or None at the time limit.

        Raises UnreachableError if the cluster does not answer for UNREACHABLE_S, or at the limit.
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
