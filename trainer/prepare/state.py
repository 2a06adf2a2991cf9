"""Progress and result of a preparation Job: on stderr, and in a file next to the dataset for runs that wait.

    OUT/.preparations/JOB.json    what the Job does, at most 5 s old; or its version, or its error

Runs have no permission to read Jobs, and Jobs none to start runs: both mount the volume.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from trainyard.contract import EXIT_BAD_CONFIG, EXIT_DONE
from trainyard.disk import replace_text

UID_ENV: Final = "TRAINYARD_JOB_UID"
"""uid of the Job: its pods share one count of attempts, a Job that replaces it begins another."""
RUNNING: Final = "running"
READY: Final = "ready"
FAILED: Final = "failed"
_EVERY_S: Final = 5.0
"""Seconds between two reports of progress."""


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
    """Prints the progress of one attempt, and writes its state if there is a file for it."""

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
            text = format_progress(what, done, total)
            print(text, file=sys.stderr, flush=True)
            self._write(text=text)

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


class ProgressCallback(Protocol):
    """Called with the current activity, the bytes done so far, and their total if it is known."""

    def __call__(self, what: str, done: int, total: int = 0, /) -> None: ...


def no_progress(_what: str, _done: int, _total: int = 0, /) -> None:
    """Report no progress."""


def format_progress(what: str, done: int, total: int) -> str:
    """Return `tokenizing: 12 of 48 MB (25 %)`."""
    if not total:
        return f"{what}: {done / 1e6:,.0f} MB"
    share = min(100, 100 * done // total)
    return f"{what}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB ({share} %)"


class RetryableError(Exception):
    """A failure that another attempt may not have; one line."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state", type=Path, metavar="FILE", help="file with progress and result, for waiting runs"
    )
    parser.add_argument(
        "--attempts",
        type=int,
        default=1,
        metavar="N",
        help="attempts after which --state reports a failure (default: %(default)s)",
    )


def run_reported(
    name: str,
    arguments: argparse.Namespace,
    work: Callable[[ProgressCallback], tuple[str, str]],
    *final: type[Exception],
) -> int:
    """Run `work`, which returns the result for waiting runs and the line to print; returns the exit code.

    0 done, 78 after one of the errors `final`, 1 after others that may pass, 130 when interrupted.
    """
    stopped = threading.Event()

    def stop(*_: object) -> None:
        stopped.set()
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    state = StateReporter(arguments.state, arguments.attempts)

    def progress(what: str, done: int, total: int = 0, /) -> None:
        if stopped.is_set():  # in a thread that the interrupted one waits for
            raise KeyboardInterrupt
        state.progress(what, done, total)

    def fail(error: str, code: int) -> int:
        state.failed(error, final=code == EXIT_BAD_CONFIG)
        for line in error.splitlines():
            print(f"{name}: {line}", file=sys.stderr)
        return code

    try:
        result, summary = work(progress)
    except final as error:
        return fail(str(error), EXIT_BAD_CONFIG)
    except RetryableError as error:
        return fail(str(error), 1)
    except OSError as error:
        return fail(f"{error.filename or arguments.out}: {error.strerror or error}", 1)
    except KeyboardInterrupt:
        state.interrupted()
        print(f"{name}: interrupted; run it again to continue", file=sys.stderr)
        return 128 + signal.SIGINT
    state.ready(result)
    print(summary)
    return EXIT_DONE
