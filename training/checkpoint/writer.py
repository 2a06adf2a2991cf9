"""Writes checkpoints in the background: one at a time, while training goes on."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from training.checkpoint.manifest import FileRecord

_HELPERS: Final = 3
"""Threads beside the writer: some hash while others wait for the disk."""
_NICENESS: Final = 10
"""Of a background save: a tenth of a step's share of a core that both want."""


class Commit(Protocol):
    """The slow half of a save: writes and publishes what was staged; raises when it cannot."""

    def __call__(self) -> None: ...


class FileWork:
    """The files that one rank has to write, taken one by one by whoever has time.

    While training goes on that is the background thread alone, which leaves the other cores to the
    steps; when training only waits, it helps.
    """

    def __init__(self, files: Sequence[tuple[str, Callable[[], FileRecord]]] = ()) -> None:
        """Each file's name, and what writes it."""
        self._left = deque(files)
        self._records: dict[str, FileRecord] = {}
        self._error: BaseException | None = None
        self._active = 0
        self._changed = threading.Condition()

    def help(self) -> None:
        """Write files until none is left to take; errors are `finish`'s to raise."""
        while True:
            with self._changed:
                if not self._left or self._error is not None:
                    return
                name, write = self._left.popleft()
                self._active += 1
            self._write(name, write)

    def finish(self) -> dict[str, FileRecord]:
        """Write what is left and wait for helpers; the records. Raises the first error there was."""
        self.help()
        with self._changed:
            self._changed.wait_for(lambda: not self._active)
            if self._error is not None:
                raise self._error
            return self._records

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
    """One thread per save, never two at once.

    An error of a background save is kept until `take_error`; training decides what it means.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._work = FileWork()

    @property
    def busy(self) -> bool:
        """Whether a save is in flight, and its staging memory in use."""
        return self._thread is not None and self._thread.is_alive()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the save in flight; whether none is left. None waits for ever."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return not self.busy

    def help(self) -> None:
        """Write files beside the background thread, from now until it has none left."""
        if self.busy:
            # Threads, though the caller only waits: the caller has a deadline to watch.
            for _ in range(_HELPERS):
                threading.Thread(target=self._work.help, daemon=True).start()

    def start(self, commit: Commit, work: FileWork | None = None) -> None:
        """Run `commit` in the background. Raises RuntimeError when a save is in flight.

        `work` are the files that it writes by `finish`, which others may help with.
        """
        if self.busy:
            raise RuntimeError("a checkpoint is still being written")
        self._error = None
        self._work = work or FileWork()
        # A daemon: a save that hangs past its deadline must not keep a dying process alive.
        self._thread = threading.Thread(target=self._run, args=(commit,), daemon=True)
        self._thread.name = "checkpoint-writer"
        self._thread.start()

    def take_error(self) -> BaseException | None:
        """The error of the last finished save, once."""
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
    """Where cores are short the steps go first; where one is idle this changes nothing.

    Helpers keep their priority: they come when training waits. Linux has one for each thread.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
