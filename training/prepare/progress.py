"""Progress output of the command."""

from __future__ import annotations

import sys
import time
from typing import Final

EVERY_S: Final = 10.0
"""Seconds between two lines when stderr is not a terminal."""
REDRAW_S: Final = 0.1


class ProgressReporter:
    """Shows progress: one updating line on a terminal, periodic lines elsewhere."""

    def __init__(self) -> None:
        self._watched = sys.stderr.isatty()
        self._shown = time.monotonic()

    def __call__(self, what: str, done: int) -> None:
        """Report the bytes done of an activity."""
        now = time.monotonic()
        if now - self._shown < (REDRAW_S if self._watched else EVERY_S):
            return
        self._shown = now
        start, end = ("\r\x1b[K", "") if self._watched else ("", "\n")
        text = f"{what}: {done / 1e6:,.0f} MB"
        print(f"{start}{text}", end=end, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Clear the line."""
        if self._watched:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
