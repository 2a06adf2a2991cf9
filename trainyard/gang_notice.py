"""One notice for all nodes of a run: the node that gets it tells the others by a file.

The reclaim of one node stops the whole gang. Without this, the programs of the other nodes would end
with a broken connection, which looks like a failure, and could not save a state that needs all ranks.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from trainyard import shared_files

_FILE: Final = ".gang-notice-{}.json"
"""By the host at which the nodes meet: replica groups of one run share its folder."""
_POLL_S: Final = 1.0
"""Limits requests to the shared file system."""
_REFRESH_S: Final = 5.0
"""An NFS client may remember for half a minute that the file does not exist, which is most of a spot notice."""


@dataclass
class GangNotice:
    """The file of one attempt of a run; does nothing for a run of one node."""

    file: Path | None
    attempt: str
    started: float = field(default_factory=time.time)
    """Unix seconds; older notices are those of earlier attempts."""
    _polled: float = 0.0
    _refreshed: float = 0.0

    @classmethod
    def of_run(cls, facts: Mapping[str, str]) -> GangNotice:
        several = int(facts["nodes"]) > 1 and "run_dir" in facts
        name = _FILE.format(facts["rendezvous_host"])
        file = Path(facts["run_dir"], name) if several else None
        return cls(file, facts["attempt"])

    def send(self) -> None:
        """Tell the other nodes; a failure is one line, since this node must still stop."""
        if self.file is None:
            return
        values = {"attempt": self.attempt, "time": time.time(), "host": os.uname().nodename}
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            shared_files.write(self.file, values)
        except OSError as error:
            print(
                f"launch: {self.file}: {error.strerror}; other nodes are not told", file=sys.stderr
            )

    def received(self, *, now: bool = False) -> str | None:
        """Return the host that told this attempt to stop; None if none did.

        Polls once a second at most, unless `now`.
        """
        if self.file is None or (not now and time.monotonic() - self._polled < _POLL_S):
            return None
        self._polled = time.monotonic()
        if now or self._polled - self._refreshed >= _REFRESH_S:
            self._refreshed = self._polled
            shared_files.refresh(self.file.parent)
        try:
            values = json.loads(self.file.read_text(encoding="utf-8"))
            if values["attempt"] == self.attempt and values["time"] >= self.started:
                return str(values["host"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return None
