"""Lock that lets one command at a time change a sandbox; others wait."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from sandbox import paths
from sandbox.reporting import Report


@contextmanager
def sandbox_lock(command: str, report: Report) -> Iterator[None]:
    """Hold the lock while the body runs. The kernel releases it when the process dies."""
    state = paths.state()
    state.home.mkdir(parents=True, exist_ok=True)
    with (state.home / "lock").open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            handle.seek(0)
            holder = handle.read().strip() or "another command"
            report(f"{holder} is working on this sandbox; waiting for it to finish")
            fcntl.flock(handle, fcntl.LOCK_EX)
        handle.seek(0)
        handle.truncate()
        handle.write(f"`{command}` (pid {os.getpid()})")
        handle.flush()
        yield
