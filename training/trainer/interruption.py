"""Notices: somebody wants this run to stop soon, with a checkpoint.

A notice is SIGTERM (a pod being deleted), SIGINT (Ctrl-C), or a file that appears: the one named by
TRAINYARD_NOTICE_FILE (a node's reclaim notice, seen by its ranks), or `notice` in the run directory
(an operator's wish, seen by rank 0 and removed once honoured). It only sets a flag; the ranks agree
on it in the exchange that every step and every evaluation batch makes anyway, so all of them stop
after the same step. This module needs no torch: it listens before anything slow is imported.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import FrameType
from typing import Final

NOTICE_FILE_ENV: Final = "TRAINYARD_NOTICE_FILE"
RUN_NOTICE_FILE: Final = "notice"
_POLL_SECONDS = 1.0
"""A shared file system should not be asked at every step."""


class Notice:
    """Whether this process was told to stop, by what, and when."""

    def __init__(self, run_dir: Path) -> None:
        self.source: str | None = None
        """SIGTERM, SIGINT or a file's path; None while there was no notice."""
        self.received_at: float | None = None
        """Unix seconds."""
        self._received = 0.0
        self._last_poll = float("-inf")
        named = os.environ.get(NOTICE_FILE_ENV)
        self._run_file = run_dir / RUN_NOTICE_FILE
        self._files = [Path(named)] if named else []

    def listen(self) -> None:
        """Catch SIGTERM and SIGINT from now on; a second SIGINT acts as it usually does."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)

    def watch_run_dir(self) -> None:
        """Also look for `notice` in the run directory; one rank does."""
        self._files.append(self._run_file)

    def given(self) -> bool:
        """Whether a notice has come; looks for the files once a second at most."""
        now = time.monotonic()
        if self.source is None and now - self._last_poll >= _POLL_SECONDS:
            self._last_poll = now
            for file in self._files:
                if file.exists():
                    self._note(str(file))
        return self.source is not None

    def seconds_left(self, deadline_s: float) -> float:
        """Of a budget that began with the notice; all of it when the notice came elsewhere."""
        spent = time.monotonic() - self._received if self.source else 0.0
        return max(0.0, deadline_s - spent)

    def honoured(self) -> None:
        """Remove the run directory's notice, so that the next start is not stopped by it."""
        self._run_file.unlink(missing_ok=True)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self.source is None:
            self._note(signal.Signals(number).name)
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _note(self, source: str) -> None:
        self.source = source
        self.received_at = time.time()
        self._received = time.monotonic()
