"""Waiting for a cluster: look, rest, look again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

POLL_S: Final = 1.0
T = TypeVar("T")


def sleep() -> None:
    time.sleep(POLL_S)


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long to wait for one thing, and what to do meanwhile."""

    limit_s: float
    rest: Callable[[], None] = sleep
    """Called between two looks."""
    clock: Callable[[], float] = time.monotonic
    """Seconds that only grow."""

    def until(self, found: Callable[[], T | None]) -> T | None:
        """The first answer that is not None; None when there was none within the limit."""
        end = self.clock() + self.limit_s
        while True:
            value = found()
            if value is not None or self.clock() >= end:
                return value
            self.rest()
