"""Attempts of one run are numbered; only the newest may publish.

An attempt claims its number by creating `attempts/attempt-00000003.json` exclusively, so two that
start at once get different numbers. Before it publishes a checkpoint it looks whether a higher
number exists: then it was replaced (a partition, a paused node) and must stop.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from pathlib import Path

from training.checkpoint.store import StaleAttempt

ATTEMPTS_DIR = "attempts"
_FILE = re.compile(r"attempt-([0-9]{8})\.json")


class PosixFence:
    """A Fence in a run directory, whatever the file system: exclusive creation is all it needs."""

    def __init__(self, run_dir: Path, attempt: int) -> None:
        self._folder = run_dir / ATTEMPTS_DIR
        self.attempt = attempt

    @classmethod
    def claim(cls, run_dir: Path) -> PosixFence:
        """Take the next number; every older attempt is fenced out from here on."""
        folder = run_dir / ATTEMPTS_DIR
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            attempt = newest_attempt(run_dir) + 1
            try:
                descriptor = os.open(
                    folder / f"attempt-{attempt:08d}.json",
                    os.O_WRONLY | os.O_CREAT | os.O_EXCL,
                    0o644,
                )
            except FileExistsError:
                continue
            with os.fdopen(descriptor, "w") as stream:
                about = {"host": socket.gethostname(), "pid": os.getpid(), "started": time.time()}
                stream.write(json.dumps(about) + "\n")
                stream.flush()
                os.fsync(stream.fileno())
            return cls(run_dir, attempt)

    def check(self) -> None:
        """Raises StaleAttempt when a newer attempt has claimed the run."""
        newest = newest_attempt(self._folder.parent)
        if newest > self.attempt:
            raise StaleAttempt(
                f"attempt {self.attempt} was replaced by attempt {newest}; nothing more is written"
            )


def newest_attempt(run_dir: Path) -> int:
    """The highest number claimed so far; 0 when there was none."""
    try:
        names = os.listdir(run_dir / ATTEMPTS_DIR)
    except FileNotFoundError:
        return 0
    return max((int(match[1]) for name in names if (match := _FILE.fullmatch(name))), default=0)
