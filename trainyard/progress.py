"""Progress of a program that reports: a gang in which a rank hangs writes no more lines.

Each node looks at the run's files by itself, so that all of them end. Changes are timed by this node's clock.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from trainyard.contract import EVENTS_FILE, METRICS_FILE

TIMEOUT_S: Final = 3600.0
"""Default; longer than any evaluation between two steps should be."""
_POLL_S: Final = 1.0
"""Limits requests to the shared file system."""

_State = tuple[tuple[int, int], ...]


@dataclass
class Progress:
    """Watches metrics.jsonl and events.jsonl; for a program that writes neither it never ends."""

    folder: Path | None
    timeout_s: float = TIMEOUT_S
    """0: off."""
    _seen: _State = ()
    _armed: bool = False
    """Whether this start of the program has reported a step."""
    _changed: float = field(default_factory=time.monotonic)
    _polled: float = 0.0

    @classmethod
    def of_run(cls, facts: Mapping[str, str], settings: Mapping[str, Any]) -> Progress:
        """Return that of a run. `facts`: values of placeholders; `settings`: program.json."""
        folder = facts.get("run_dir")
        timeout = float(settings.get("progress_timeout_s", TIMEOUT_S))
        found = cls(Path(folder) if folder else None, timeout)
        found._seen = found._state()
        return found

    def stalled_s(self) -> float | None:
        """Return the seconds without a report once they exceed the limit; None before."""
        now = time.monotonic()
        if self.folder is None or not self.timeout_s or now - self._polled < _POLL_S:
            return None
        self._polled = now
        state = self._state()
        if state != self._seen:
            self._armed = self._armed or state[0] != self._seen[0]
            self._seen, self._changed = state, now
        silent = now - self._changed
        return silent if self._armed and silent > self.timeout_s else None

    def _state(self) -> _State:
        found = []
        for name in (METRICS_FILE, EVENTS_FILE):
            entry = (0, 0)
            if self.folder:
                with contextlib.suppress(OSError):
                    about = os.stat(self.folder / name)
                    entry = (about.st_size, about.st_mtime_ns)
            found.append(entry)
        return tuple(found)
