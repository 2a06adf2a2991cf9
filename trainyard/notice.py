"""Notices: requests to stop this run soon, with a checkpoint.

A notice is SIGTERM (a pod being deleted), SIGINT (Ctrl-C), or a file that appears: the one named by
TRAINYARD_NOTICE_FILE (a node's reclaim notice, seen by its ranks), or `notice` in the run directory
(an operator's request, seen by rank 0 and removed once acknowledged). It only sets a flag; the ranks
agree on it in the all-reduce of every step and evaluation batch, so that all stop after the same
step. A thread reads the signals: Python runs handlers only between bytecodes of the main thread,
which may wait for other ranks for minutes. Needs no torch: it listens before anything slow is
imported.
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

from trainyard.exit_codes import report_request

NOTICE_FILE_ENV: Final = "TRAINYARD_NOTICE_FILE"
RUN_NOTICE_FILE: Final = "notice"
_POLL_SECONDS = 1.0
"""Limits requests to a shared file system."""
_SECOND_CTRL_C_SECONDS = 2.0
"""A launcher forwards Ctrl-C to ranks that received it from the terminal, too."""


class Notice:
    """Whether this process was asked to stop, by what, and when."""

    def __init__(self, run_dir: Path) -> None:
        self.source: str | None = None
        """SIGTERM, SIGINT or a file's path; None without a notice."""
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

        Until `work_started` there is nothing to save, and a signal calls `leave` immediately.
        """
        self._leave = leave
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
        threading.Thread(target=self._read_signals, args=(reader,), daemon=True).start()
        signal.signal(signal.SIGTERM, _noop_handler)
        signal.signal(signal.SIGINT, self._on_ctrl_c)

    def work_started(self) -> None:
        """Let the ranks stop together from now on."""
        self._leave = None

    def watch_run_dir(self) -> None:
        """Also poll `notice` in the run directory; one rank does."""
        self._files.append(self._run_file)

    def is_set(self) -> bool:
        """Return whether a notice was received; polls the files once a second at most."""
        now = time.monotonic()
        if self.source is None and now - self._last_poll >= _POLL_SECONDS:
            self._last_poll = now
            for file in self._files:
                if file.exists():
                    self._note(str(file))
        return self.source is not None

    def seconds_left(self, deadline_s: float) -> float:
        """Return what is left of the deadline since the notice; all of it if another rank received it."""
        spent = time.monotonic() - self._received if self.source else 0.0
        return max(0.0, deadline_s - spent)

    def acknowledged(self) -> None:
        """Remove the run directory's notice, so that it does not stop the next start."""
        self._run_file.unlink(missing_ok=True)

    def _read_signals(self, reader: socket.socket) -> None:
        """Read received signals in a thread: each byte is a signal number."""
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
        report_request()


def _noop_handler(_: int, __: FrameType | None) -> None:
    """Do nothing: the wake-up descriptor is only written for signals with a handler."""
