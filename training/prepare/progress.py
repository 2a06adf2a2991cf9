"""What the command shows while it works."""

from __future__ import annotations

import sys
import time
from typing import Final

EVERY_S: Final = 10.0
"""Between two lines where nobody watches."""
REDRAW_S: Final = 0.1


class ProgressReporter:
    """One line that changes on a terminal, a line now and then anywhere else."""

    def __init__(self) -> None:
        self._watched = sys.stderr.isatty()
        self._shown = time.monotonic()

    def __call__(self, what: str, done: int) -> None:
        """So many bytes of this are done."""
        now = time.monotonic()
        if now - self._shown < (REDRAW_S if self._watched else EVERY_S):
            return
        self._shown = now
        start, end = ("\r\x1b[K", "") if self._watched else ("", "\n")
        text = f"{what}: {done / 1e6:,.0f} MB"
        print(f"{start}{text}", end=end, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave a clean line."""
        if self._watched:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
