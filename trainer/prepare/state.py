"""Progress and result of a preparation Job, in a file next to the dataset, for runs that wait for it.

    OUT/.preparations/JOB.json    what the Job does, at most 5 s old; or its version, or its error

Runs have no permission to read Jobs, and Jobs none to start runs: both mount the volume.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trainer.prepare.progress import format_progress
from trainyard.disk import replace_text

UID_ENV: Final = "TRAINYARD_JOB_UID"
"""uid of the Job: its pods share one count of attempts, a Job that replaces it begins another."""
RUNNING: Final = "running"
READY: Final = "ready"
FAILED: Final = "failed"
_EVERY_S: Final = 5.0


@dataclass(frozen=True, kw_only=True)
class PreparationState:
    state: str
    """running, ready or failed: it will not be tried again."""
    text: str
    """The activity, the version, or the error; one line."""
    attempt: int
    job_uid: str


def read_state(file: Path) -> PreparationState | None:
    """Return the state; None if no attempt has begun."""
    try:
        return PreparationState(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError):
        return None


class StateReporter:
    """Writes the state of one attempt; without a file it does nothing."""

    def __init__(self, file: Path | None, attempts: int) -> None:
        """`attempts`: after so many failed ones the Job has failed."""
        self._file, self._attempts = file, attempts
        uid = os.environ.get(UID_ENV, "")
        before = read_state(file) if file else None
        attempt = before.attempt + 1 if before and before.job_uid == uid else 1
        self._state = PreparationState(state=RUNNING, text="starts", attempt=attempt, job_uid=uid)
        self._written = 0.0
        self._write()

    def progress(self, what: str, done: int, total: int = 0, /) -> None:
        if time.monotonic() - self._written >= _EVERY_S:
            self._write(text=format_progress(what, done, total))

    def ready(self, version: str) -> None:
        self._write(state=READY, text=version)

    def failed(self, error: str, *, final: bool) -> None:
        """Record the end of this attempt. `final`: another would fail, too."""
        over = final or self._attempts <= self._state.attempt
        text = " ".join(error.split())
        self._write(state=FAILED if over else RUNNING, text=text)

    def interrupted(self) -> None:
        """Record that the pod was told to stop, which does not count as an attempt."""
        self._write(text="interrupted", attempt=self._state.attempt - 1)

    def _write(self, **changed: str | int) -> None:
        self._written = time.monotonic()
        if self._file is None:
            return
        self._state = dataclasses.replace(self._state, **changed)  # type: ignore[arg-type]
        # The state is information: a full disk must not hide the error that it would report.
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            replace_text(self._file, json.dumps(dataclasses.asdict(self._state)))
