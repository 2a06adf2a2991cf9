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

import contextlib
import functools
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from trainyard.contract import NOTICE_FILE_ENV, RUN_NOTICE_FILE, WORKER_EXIT_S
from trainyard.exit_codes import report_request
from trainyard.run_info import run

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
        self._callbacks: list[Callable[[], None]] = []
        self._first = threading.Lock()
        """Taken by the first of the signals and files, for ever."""
        named = os.environ.get(NOTICE_FILE_ENV)
        self._run_file = run_dir / RUN_NOTICE_FILE
        self._files = [Path(named)] if named else []

    def listen(self, leave: Callable[[], None]) -> None:
        """Catch SIGTERM and SIGINT from now on; a second Ctrl-C, seconds later, interrupts.

        Until `work_started` there is nothing to save, and a signal calls `leave` immediately.
        """
        self._leave = leave
        self._start_reader()
        signal.signal(signal.SIGTERM, _noop_handler)
        signal.signal(signal.SIGINT, self._on_ctrl_c)

    def listen_quietly(self) -> None:
        """Catch SIGTERM from now on, besides a handler of the program; call it in the main thread."""
        if signal.getsignal(signal.SIGTERM) in (signal.SIG_DFL, None):
            signal.signal(signal.SIGTERM, self._on_sigterm)
        former = self._start_reader()
        if former != -1:  # an event loop's: the handler alone must do
            os.close(signal.set_wakeup_fd(former))

    def call(self, callback: Callable[[], None]) -> None:
        """Call `callback` once a notice is received, at once if one was."""
        self._callbacks.append(callback)
        if self.source is not None:
            callback()

    def _start_reader(self) -> int:
        """Read signals in a thread; return the former wake-up descriptor, -1 for none."""
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        former = signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
        threading.Thread(target=self._read_signals, args=(reader,), daemon=True).start()
        return former

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

    def is_for_run(self) -> bool:
        return self.source == str(self._run_file)

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

    def _on_sigterm(self, _: int, __: FrameType | None) -> None:
        self._note("SIGTERM")

    def _note(self, source: str) -> None:
        if not self._first.acquire(blocking=False):  # never a wait: this may be a signal handler
            return
        self.received_at = time.time()
        self._received = time.monotonic()
        self.source = source
        report_request()
        for callback in self._callbacks:
            callback()


def requested() -> bool:
    """Return whether this process was asked to stop soon; from the first call on SIGTERM does not end it.

    Ranks may learn of a notice at different steps: agree on it before a collective operation depends on it.
    """
    return _own().is_set()


def for_run() -> bool:
    """Return whether it was an operator who asked, for the whole run and not for this node."""
    return _own().is_for_run()


def seconds_left() -> float | None:
    """Return the seconds in which a checkpoint must be published; None without a notice."""
    own = _own()
    return own.seconds_left(run.notice_seconds - WORKER_EXIT_S) if own.is_set() else None


def on_notice(callback: Callable[[], None]) -> None:
    """Call `callback` once, in any thread, when a notice is received; at once if one was."""
    own = _own()
    own.call(callback)
    threading.Thread(target=_poll_files, args=(own,), daemon=True).start()


def acknowledge() -> None:
    """Remove an operator's request to stop, so that it does not stop the next start (rank 0)."""
    if run.rank == 0 and run.run_dir is not None:
        _own().acknowledged()


def _poll_files(own: Notice) -> None:
    while not own.is_set():
        time.sleep(_POLL_SECONDS)


def use(own: Notice) -> None:
    """Have the functions of this module speak of a notice that the program has made itself."""
    _given.append(own)


_given: list[Notice] = []


def _own() -> Notice:
    return _given[-1] if _given else _listening()


@functools.cache
def _listening() -> Notice:
    """Return the notice of this process, listening from the first call on."""
    notice = Notice(run.run_dir or Path())
    if run.rank == 0 and run.run_dir is not None:
        notice.watch_run_dir()
    with contextlib.suppress(ValueError):  # not in the main thread: files only
        notice.listen_quietly()
    return notice


def _noop_handler(_: int, __: FrameType | None) -> None:
    """Do nothing: the wake-up descriptor is only written for signals with a handler."""
