"""Write checkpoints in a background thread, one at a time, while training continues."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from trainyard.store.manifest import FileRecord

_HELPERS: Final = 3
"""Additional threads: some hash while others wait for the disk."""
NICENESS: Final = 10
"""Nice value of a background save: about a tenth of a training thread's CPU share."""
_PAUSES: Final = 6.0
"""Seconds of pause per second of writing: a nice value does not keep a save from the memory and the disk."""


class Commit(Protocol):
    """The slow part of a save: writes and publishes what was staged; raises on failure."""

    def __call__(self) -> None: ...


class FileWork:
    """A work queue of the files that one rank writes.

    While training runs, only the background thread takes files, and it pauses after each; when
    training waits, more threads do, and none pauses.
    """

    def __init__(
        self, files: Sequence[tuple[str, Callable[[], FileRecord]]] = (), *, pauses_s: float = 0.0
    ) -> None:
        """`files` are names with functions that write them; `pauses_s` the most pauses in all."""
        self.paused_s = 0.0
        self._pauses_s = pauses_s
        self._left = deque(files)
        self._records: dict[str, FileRecord] = {}
        self._error: BaseException | None = None
        self._active = 0
        self._changed = threading.Condition()

    def help(self) -> None:
        """End the pauses, and write files until none is left; `finish` raises errors."""
        with self._changed:
            self._pauses_s = 0.0
            self._changed.notify_all()
        while self._write_next():
            pass

    def finish(self) -> dict[str, FileRecord]:
        """Write the remaining files, wait for helpers and return the records. Raises the first error."""
        begun = time.monotonic()
        while self._write_next():
            self._pause(_PAUSES * (time.monotonic() - begun))
            begun = time.monotonic()
        with self._changed:
            self._changed.wait_for(lambda: not self._active)
            if self._error is not None:
                raise self._error
            return self._records

    def _pause(self, seconds: float) -> None:
        begun = time.monotonic()
        with self._changed:
            if self._left:
                seconds = min(seconds, self._pauses_s - self.paused_s)
                self._changed.wait_for(lambda: not self._pauses_s, max(0.0, seconds))
        self.paused_s += time.monotonic() - begun

    def _write_next(self) -> bool:
        """Write a file; return False if none is left or one failed."""
        with self._changed:
            if not self._left or self._error is not None:
                return False
            name, write = self._left.popleft()
            self._active += 1
        self._write(name, write)
        return True

    def _write(self, name: str, write: Callable[[], FileRecord]) -> None:
        record, failure = None, None
        try:
            record = write()
        except BaseException as error:
            failure = error
        with self._changed:
            if record is not None:
                self._records[name] = record
            self._error = self._error or failure
            self._active -= 1
            self._changed.notify_all()


class BackgroundWriter:
    """Runs one save at a time in a thread. Errors are kept until `take_error`."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._work = FileWork()

    @property
    def busy(self) -> bool:
        """Whether a save is in flight, and its staging memory in use."""
        return self._thread is not None and self._thread.is_alive()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the save in flight; return whether it is done. None waits without limit."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return not self.busy

    def help(self) -> None:
        """Speed up the save in flight with additional threads."""
        if self.busy:
            # Not in the calling thread: it has a deadline to watch.
            for _ in range(_HELPERS):
                threading.Thread(target=self._work.help, daemon=True).start()

    def start(self, commit: Commit, work: FileWork | None = None) -> None:
        """Run `commit` in the background. Raises RuntimeError when a save is in flight.

        `work` holds the files that `commit` writes, for `help`.
        """
        if self.busy:
            raise RuntimeError("a checkpoint is still being written")
        self._error = None
        self._work = work or FileWork()
        # A daemon thread: a save that hangs past its deadline must not keep the process alive.
        self._thread = threading.Thread(target=self._run, args=(commit,), daemon=True)
        self._thread.name = "checkpoint-writer"
        self._thread.start()

    def take_error(self) -> BaseException | None:
        if self.busy:
            return None
        error, self._error = self._error, None
        return error

    def _run(self, commit: Commit) -> None:
        _yield_to_training()
        try:
            commit()
        except BaseException as error:
            self._error = error


def _yield_to_training() -> None:
    """Lower this thread's priority, so that training steps go first where cores are short.

    Helpers keep theirs: they run when training waits. Linux has a nice value per thread.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
