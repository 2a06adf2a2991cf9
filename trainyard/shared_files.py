"""Messages between the ranks of one start of a gang, as small files in a shared folder.

Needs no torch and no open port, so any program can use it. Ranks know each other by the address at
which the launcher let them meet, which is another one at each start.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from trainyard.contract import ATTEMPT_ENV, EXIT_DIR_ENV, NODES_ENV
from trainyard.disk import replace_text
from trainyard.watchdog import watchdog

_REFRESH_S: Final = 2.0
"""An NFS client may remember for half a minute that a file does not exist, unless the folder changes."""
_MEETING_POINT: Final = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "PMIX_NAMESPACE",
    ATTEMPT_ENV,
)


class RankMissing(TimeoutError):
    """Another rank did not do its part in time."""


def start_id() -> str:
    """Return a name of this start of the gang: the same on all its ranks, another at the next start."""
    words = [os.environ.get(name, "") for name in _MEETING_POINT]
    if int(os.environ.get(NODES_ENV) or 1) == 1:
        words.append(os.environ.get(EXIT_DIR_ENV, ""))
    if not any(words):
        words.append(str(os.getpid()))
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]


def write(file: Path, values: Any) -> None:
    """Write a message: it appears complete. Raises OSError."""
    replace_text(file, json.dumps(values) + "\n")


def wait(file: Path, timeout_s: float, what: str, alive: Path | None = None) -> Any:
    """Return a message of another rank once it is there. Raises RankMissing with `what`.

    `alive`: a file that ranks replace while they make progress; the time begins anew when it changes.
    """
    with watchdog.waiting():
        return _wait(file, timeout_s, what, alive)


def _wait(file: Path, timeout_s: float, what: str, alive: Path | None) -> Any:
    limit, refreshed, pause, seen = time.monotonic() + timeout_s, time.monotonic(), 0.01, ""
    while True:
        with contextlib.suppress(FileNotFoundError):
            return json.loads(file.read_text(encoding="utf-8"))
        now = time.monotonic()
        if now > limit:
            raise RankMissing(f"{what}: nothing came within {timeout_s:.0f} s")
        if now - refreshed > _REFRESH_S:
            refreshed = now
            refresh(file.parent)
            with contextlib.suppress(OSError):
                if alive and (text := alive.read_text(encoding="utf-8")) != seen:
                    seen, limit = text, now + timeout_s
                    watchdog.still_working()
        time.sleep(min(pause, max(0.0, limit - now)))
        pause = min(2 * pause, 0.5)


def refresh(folder: Path) -> None:
    """Have this host read a shared folder again."""
    with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=folder):
        pass
