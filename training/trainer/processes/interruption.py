"""Notices: somebody wants this run to stop soon, with a checkpoint.

A notice is SIGTERM (a pod being deleted), SIGINT (Ctrl-C), or a file that appears: the one named by
TRAINYARD_NOTICE_FILE (a node's reclaim notice, seen by its ranks), or `notice` in the run directory
(an operator's wish, seen by rank 0 and removed once honoured). It only sets a flag; the ranks agree
on it in the exchange that every step and every evaluation batch makes anyway, so all of them stop
after the same step. Signals are read by a thread of their own: Python runs a handler only between
two bytecodes of the main thread, which may be waiting for other ranks inside one for minutes. This
module needs no torch: it listens before anything slow is imported.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final

NOTICE_FILE_ENV: Final = "TRAINYARD_NOTICE_FILE"
RUN_NOTICE_FILE: Final = "notice"
_POLL_SECONDS = 1.0
"""A shared file system should not be asked at every step."""
_SECOND_CTRL_C_SECONDS = 2.0
"""A launcher passes Ctrl-C on to ranks that the terminal has told already."""


class Notice:
    """Whether this process was told to stop, by what, and when."""

    def __init__(self, run_dir: Path) -> None:
        self.source: str | None = None
        """SIGTERM, SIGINT or a file's path; None while there was no notice."""
        self.received_at: float | None = None
        """Unix seconds."""
        self._received = 0.0
        self._last_poll = float("-inf")
        self._leave: Callable[[], None] | None = None
        named = os.environ.get(NOTICE_FILE_ENV)
        self._run_file = run_dir / RUN_NOTICE_FILE
        self._files = [Path(named)] if named else []

    def listen(self, leave: Callable[[], None]) -> None:
        """Catch SIGTERM and SIGINT from now on; a second Ctrl-C, seconds later, interrupts.

        Until `work_started` there is nothing to save: then `leave` is called at once.
        """
        self._leave = leave
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
        threading.Thread(target=self._read_signals, args=(reader,), daemon=True).start()
        signal.signal(signal.SIGTERM, _noop_handler)
        signal.signal(signal.SIGINT, self._on_ctrl_c)

    def work_started(self) -> None:
        """From now on the ranks stop together."""
        self._leave = None

    def watch_run_dir(self) -> None:
        """Also look for `notice` in the run directory; one rank does."""
        self._files.append(self._run_file)

    def is_set(self) -> bool:
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

    def acknowledged(self) -> None:
        """Remove the run directory's notice, so that the next start is not stopped by it."""
        self._run_file.unlink(missing_ok=True)

    def _read_signals(self, reader: socket.socket) -> None:
        """A thread: each byte is the number of a signal that came."""
        while number := reader.recv(1):
            if number[0] in (signal.SIGTERM, signal.SIGINT) and self.source is None:
                self._note(signal.Signals(number[0]).name)
                if self._leave:
                    self._leave()

    def _on_ctrl_c(self, _: int, __: FrameType | None) -> None:
        if self.source and time.monotonic() - self._received > _SECOND_CTRL_C_SECONDS:
            raise KeyboardInterrupt

    def _note(self, source: str) -> None:
        self.received_at = time.time()
        self._received = time.monotonic()
        self.source = source


def _noop_handler(_: int, __: FrameType | None) -> None:
    """A handler must be set for the wake-up to be written; the thread does the rest."""
