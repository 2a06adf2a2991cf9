"""Fencing: attempts of a run are numbered, and only the newest may publish.

An attempt claims its number by creating `attempts/attempt-00000003.json` exclusively, so concurrent
starts get different numbers. Before it publishes a checkpoint it checks for a higher number, which
means that it was replaced (a partition, a paused node) and must stop.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from pathlib import Path

from trainyard import shared_files
from trainyard.store.interface import StaleAttempt

ATTEMPTS_DIR = "attempts"
_FILE = re.compile(r"attempt-([0-9]{8})\.json")


class PosixFence:
    """A Fence in a run directory; needs only exclusive file creation."""

    def __init__(self, run_dir: Path, attempt: int) -> None:
        self._folder = run_dir / ATTEMPTS_DIR
        self.attempt = attempt

    @classmethod
    def claim(cls, run_dir: Path, number: int | None = None) -> PosixFence:
        """Claim a number, which fences out every older attempt.

        None: the next one. Another `number` is claimed once at most, and only while it is the highest: else
        raises StaleAttempt.
        """
        folder = run_dir / ATTEMPTS_DIR
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            attempt = number or newest_attempt(run_dir) + 1
            try:
                descriptor = os.open(
                    folder / f"attempt-{attempt:08d}.json",
                    os.O_WRONLY | os.O_CREAT | os.O_EXCL,
                    0o644,
                )
            except FileExistsError:
                if number:
                    raise already_claimed(number) from None
                continue
            with os.fdopen(descriptor, "w") as stream:
                about = {"host": socket.gethostname(), "pid": os.getpid(), "started": time.time()}
                stream.write(json.dumps(about) + "\n")
                stream.flush()
                os.fsync(stream.fileno())
            fence = cls(run_dir, attempt)
            if number:
                fence.check()
            return fence

    def check(self) -> None:
        """Raise StaleAttempt when a newer attempt has claimed the run, or the claim is gone."""
        newest = newest_attempt(self._folder.parent)
        if newest < self.attempt:
            raise StaleAttempt(
                f"{self._folder.parent}: the claim of attempt {self.attempt} is gone: the run folder was "
                "removed or replaced while the run wrote to it; nothing more is written"
            )
        if newest > self.attempt:
            raise StaleAttempt(
                f"attempt {self.attempt} was replaced by attempt {newest}; nothing more is written"
            )


def already_claimed(attempt: int) -> StaleAttempt:
    return StaleAttempt(f"attempt {attempt} was claimed by another process; nothing is written")


def newest_attempt(run_dir: Path) -> int:
    """Return the highest claimed number; 0 if there is none."""
    shared_files.refresh(run_dir / ATTEMPTS_DIR)
    try:
        names = os.listdir(run_dir / ATTEMPTS_DIR)
    except FileNotFoundError:
        return 0
    return max((int(match[1]) for name in names if (match := _FILE.fullmatch(name))), default=0)
