"""Locks that let one command at a time change a sandbox or the cache; others wait."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from sandbox import paths
from sandbox.reporting import Report


@contextmanager
def held(path: Path, waiting: Report) -> Iterator[IO[str]]:
    """Hold the lock of a file while the body runs; `waiting` gets the text in the file if another process has it.

    The kernel releases it when the process dies.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            handle.seek(0)
            waiting(handle.read().strip())
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle


@contextmanager
def sandbox_lock(command: str, report: Report) -> Iterator[None]:
    def waiting(holder: str) -> None:
        holder = holder or "another command"
        report(f"{holder} is working on this sandbox; waiting for it to finish")

    with held(paths.state().home / "lock", waiting) as handle:
        handle.seek(0)
        handle.truncate()
        handle.write(f"`{command}` (pid {os.getpid()})")
        handle.flush()
        yield
