"""Waiting for a condition with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(
    found: Callable[[], T | None], what: str, deadline_s: float = 240.0, *, every_s: float = 0.05
) -> T:
    """Return the first truthy `found()`; fail the test with `what` after the deadline.

    At most a third of the time is spent on looking: what the test waits for needs the processors.
    """
    end = time.monotonic() + deadline_s
    while True:
        begun = time.monotonic()
        value = found()
        now = time.monotonic()
        if value:
            return value
        assert now < end, f"not within {deadline_s:g} s: {what}"
        time.sleep(max(every_s, 2 * (now - begun)))
