"""Progress output of the command."""

from __future__ import annotations

import sys
import time
from typing import Final, Protocol

EVERY_S: Final = 5.0
"""Seconds between two lines."""


class ProgressCallback(Protocol):
    """Called with the current activity, the bytes done so far, and their total if it is known."""

    def __call__(self, what: str, done: int, total: int = 0, /) -> None: ...


def no_progress(_what: str, _done: int, _total: int = 0, /) -> None:
    """Report no progress."""


def format_progress(what: str, done: int, total: int) -> str:
    """Return `tokenizing: 12 of 48 MB (25 %)`."""
    if not total:
        return f"{what}: {done / 1e6:,.0f} MB"
    share = min(100, 100 * done // total)
    return f"{what}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB ({share} %)"


class ProgressReporter:
    """Prints a line every few seconds."""

    def __init__(self) -> None:
        self._shown = time.monotonic()

    def __call__(self, what: str, done: int, total: int = 0, /) -> None:
        now = time.monotonic()
        if now - self._shown >= EVERY_S:
            self._shown = now
            print(format_progress(what, done, total), file=sys.stderr, flush=True)
