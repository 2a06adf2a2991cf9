"""The lease of a run: by it the leader shows newcomers that the run is alive.

The thread that renews it also notices when another group has taken the run over.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Final

from training.trainer.elastic.views import ViewLog

RENEW_S: Final = 0.5
REFUSED_S: Final = 2.0
"""Patience with members whose addresses refuse connections: in most cases their processes are gone."""
_SLACK_S: Final = 3.0
_OLD_S: Final = 2.0
"""A look that is older was delayed: by a stopped process or a stalled file system."""


class LeaseHolder:
    """Renews the lease while this process leads, and looks whether its view has a successor.

    In a thread of its own: heartbeats must not wait for a file system that stalls.
    """

    def __init__(self, log: ViewLog, led: Callable[[], int | None]) -> None:
        """`led`: returns the number of the view that this process leads."""
        self._log, self._led = log, led
        self._superseded = 0
        self._looked_at = time.monotonic()
        self._due, self._closed = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._thread.start()

    def renew(self) -> None:
        """Renew the lease at once, without waiting for it: this process may lead a new view."""
        self._due.set()

    def is_superseded(self, view: int) -> bool:
        """Return whether this view is known to have a successor; reads no file."""
        return self._superseded >= view

    def is_late(self) -> bool:
        """Return whether the thread has not looked for a successor lately."""
        return time.monotonic() - self._looked_at > _OLD_S

    def close(self) -> None:
        """End the thread, unless it waits for the file system."""
        self._closed = True
        self._due.set()
        self._thread.join(1.0)

    def _run(self) -> None:
        while True:
            self._due.wait(RENEW_S)
            self._due.clear()
            if self._closed:
                return
            view, begun = self._led(), time.monotonic()
            if view is None or self.is_superseded(view):
                continue
            with contextlib.suppress(OSError):  # the fence of checkpoints is what protects
                self._log.renew_lease()
            # After a write to the folder, which makes NFS look for entries of other clients.
            if self._log.exists(view + 1):
                self._superseded = view
            self._looked_at = begun


class LeaseWatch:
    """A newcomer's count of how long the run has shown no sign of life in its folder."""

    def __init__(self, log: ViewLog, silent_after_s: float) -> None:
        self._log = log
        self._patience_s = 2 * silent_after_s + _SLACK_S
        self._longest_s = silent_after_s + RENEW_S
        """Between two looks, usually: a dial that gets no answer takes `silent_after_s`."""
        self._seen, self._looked, self._silent_s = "", time.monotonic(), 0.0

    def expired(self, view: int, *, refused: bool = False) -> bool:
        """Return whether the lease has not been renewed for the whole patience, and this is still the newest view.

        `refused`: all members refuse connections. Time in which this process was stopped, or waited for the file
        system, counts little: the leader may have waited for it as well.
        """
        now, text = time.monotonic(), f"{view} {self._log.lease()}"
        elapsed, self._looked = now - self._looked, now
        if text != self._seen:
            self._seen, self._silent_s = text, 0.0
        else:
            self._silent_s += min(elapsed, RENEW_S if refused else self._longest_s)
        return self._silent_s > (REFUSED_S if refused else self._patience_s)
