"""Signs of life of a node's ranks, and the end of a rank that gives none.

A process that is stopped, or in code that holds Python's lock, cannot end itself. The other ranks of a gang end
without it, and the gang restarts. The other groups of an elastic run go on without its group, so only the launcher
is left to end it: then the group starts again and joins.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from trainyard.exit_codes import ExitDir, rank_of_environment

_BEAT_S: Final = 1.0


@contextlib.contextmanager
def signs_of_life(limit_s: float) -> Iterator[None]:
    """Let the launcher, if there is one, end this rank once it has given no sign of life for `limit_s` seconds."""
    folder = ExitDir.from_environment()
    if folder is None:
        yield
        return
    file = folder.write_sign_of_life(rank_of_environment(), limit_s)
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(_BEAT_S):
            with contextlib.suppress(OSError):
                os.utime(file)

    threading.Thread(target=beat, name="signs-of-life", daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        file.unlink(missing_ok=True)


@dataclass
class _Sign:
    modified_ns: int
    silent_s: float = 0.0


@dataclass
class SilentRanks:
    """The launcher's side."""

    folder: ExitDir
    _signs: dict[int, _Sign] = field(default_factory=dict)
    _looked: float = float("-inf")

    def end(self, now: float) -> None:
        """End the ranks that have been silent for too long, and say so; `now`: monotonic seconds.

        Only time in which the launcher itself ran counts: while a machine is suspended, no rank can give a sign.
        """
        elapsed = min(now - self._looked, 2 * _BEAT_S)
        if elapsed < _BEAT_S:
            return
        self._looked = now
        for rank, file in self.folder.signs_of_life().items():
            with contextlib.suppress(FileNotFoundError):  # the rank ends in order
                self._look_at(rank, file, elapsed)

    def _look_at(self, rank: int, file: Path, elapsed: float) -> None:
        modified = file.stat().st_mtime_ns
        sign = self._signs.get(rank)
        if sign is None or sign.modified_ns != modified:
            self._signs[rank] = _Sign(modified)
            return
        sign.silent_s += elapsed
        told = json.loads(file.read_text(encoding="utf-8"))
        if sign.silent_s < told["limit_s"]:
            return
        print(
            f"launch: rank {rank} has given no sign of life for {sign.silent_s:.0f} s"
            f" (pid {told['pid']}): it is ended",
            file=sys.stderr,
            flush=True,
        )
        file.unlink()
        with contextlib.suppress(ProcessLookupError):
            os.kill(told["pid"], signal.SIGKILL)
