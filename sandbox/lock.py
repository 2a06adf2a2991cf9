"""One command at a time changes a sandbox; a second one says so and waits."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sandbox import paths


@contextmanager
def sandbox_lock(command: str, report: Callable[[str], None]) -> Iterator[None]:
    """Hold the sandbox while the body runs. The kernel lets go when the process dies, however it dies."""
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
