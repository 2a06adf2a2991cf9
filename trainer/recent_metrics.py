"""The last lines of metrics in every group of an elastic run: a leader may be lost before it wrote the newest."""

from __future__ import annotations

import errno
import threading
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Final

from trainyard.run_logs import MetricsLog, StepMetrics

_KEPT: Final = 4096
"""More steps than are taken while a long file is opened."""


class RecentMetrics(MetricsLog):
    """Keeps the last lines; while this group leads, writes them to the file as well. Thread-safe."""

    def __init__(self) -> None:
        super().__init__(Path(), 0, enabled=False)
        self._recent: deque[StepMetrics] = deque(maxlen=_KEPT)
        self._file: MetricsLog | None = None
        self._lock = threading.Lock()
        self._settled = threading.Event()
        """Set once the file is open, or cannot be opened."""

    def append(self, metrics: StepMetrics) -> None:
        """Keep a line, and write it if this group leads. Raises OSError."""
        with self._lock:
            self._recent.append(metrics)
            if self._file:
                self._file.append(metrics)

    def open(self, path: Path, step: int, attempt: int) -> None:
        """Write to this file from now on, first what it lacks; in any thread. Raises OSError.

        `step`: after which this group has begun to lead. Lines up to it become those of this attempt.
        """
        try:
            file = MetricsLog(path, step, enabled=True)
            with self._lock:
                for one in self._recent:
                    if one.step > step:
                        file.append(one)
                    elif one.step > step - file.missing:
                        file.append(replace(one, attempt=attempt))
                        file.missing -= 1
                self._file, self.dropped, self.missing = file, file.dropped, file.missing
        finally:
            self._settled.set()

    def sync(self) -> None:
        """Fsync the file, once it is open; in any thread. Raises OSError."""
        self._settled.wait()
        if self._file is None:
            raise OSError(errno.EIO, "metrics.jsonl could not be opened")
        self._file.sync()

    def close(self) -> None:
        """Close the file, and forget the steps: this group leads no more."""
        with self._lock:
            file, self._file = self._file, None
            self._recent.clear()
            self._settled.clear()
        if file:
            file.close()
