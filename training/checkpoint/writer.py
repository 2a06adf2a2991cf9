"""Writes checkpoints in the background: one at a time, while training goes on."""

from __future__ import annotations

import threading
from typing import Protocol


class Commit(Protocol):
    """The slow half of a save: writes and publishes what was staged; raises when it cannot."""

    def __call__(self) -> None: ...


class BackgroundWriter:
    """One thread per save, never two at once.

    An error of a background save is kept until `take_error`; training decides what it means.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def busy(self) -> bool:
        """Whether a save is in flight, and its staging memory in use."""
        return self._thread is not None and self._thread.is_alive()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the save in flight; whether none is left. None waits for ever."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return not self.busy

    def start(self, commit: Commit) -> None:
        """Run `commit` in the background. Raises RuntimeError when a save is in flight."""
        if self.busy:
            raise RuntimeError("a checkpoint is still being written")
        self._error = None
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
        try:
            commit()
        except BaseException as error:
            self._error = error
