"""`python -m trainer.prepare.wait`: an init container that ends when the run's dataset or model is there.

Exit codes: 0 it is there; 78 its Job has failed; 75 told to stop. It shows the Job's progress. While it
waits the gang is not ready, so Kueue returns a run that waits for long to its queue.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trainer.cli import Parser
from trainer.prepare.state import FAILED, READY, PreparationState, read_state
from trainyard.contract import EXIT_BAD_CONFIG, EXIT_DONE, EXIT_PREEMPTED

POLL_S: Final = 1.0
SHOW_S: Final = 30.0
"""Seconds between two lines without news."""
SETTLE_S: Final = 30.0
"""A failure from before the start of this process is final after so long: a new Job may be about to begin. Less
than the sandbox lets a pod become ready in: its next attempt would wait as long again."""
SILENT_S: Final = 1800.0
"""After so long without news an attempt was killed: 360 times as long as it takes to report."""


@dataclass(frozen=True, kw_only=True)
class Thing:
    """What a run waits for, in messages."""

    name: str
    work: str
    """What its Job does."""
    ready: str
    silent: str
    """Why the Job may have reported nothing."""


DATASET: Final = Thing(
    name="dataset",
    work="the preparation",
    ready="version {} is prepared",
    silent="its Job was removed or exceeded its memory: see dataset.resources",
)
MODEL: Final = Thing(
    name="model", work="the download", ready="{} is fetched", silent="its Job was removed"
)
THINGS: Final = {one.name: one for one in (DATASET, MODEL)}


def main() -> int:
    """Wait for it; returns the exit code."""
    arguments = _parse()
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    things = THINGS[arguments.what]
    return Waiting(arguments.state, arguments.settle, arguments.silent, things).run(stopped)


class Waiting:
    """Follows the state file of a preparation."""

    def __init__(
        self, file: Path, settle_s: float, silent_s: float, thing: Thing = DATASET
    ) -> None:
        self._thing = thing
        self._file, self._settle_s, self._silent_s = file, settle_s, silent_s
        self._first = self._last = read_state(file)
        self._began = self._changed = time.monotonic()
        self._shown = float("-inf")

    def run(self, stopped: threading.Event) -> int:
        """Return the exit code once it is known."""
        while True:
            found = read_state(self._file)
            now = time.monotonic()
            if found != self._last:
                self._last, self._changed = found, now
            if found and found.state == READY:
                self._say(self._thing.ready.format(found.text))
                return EXIT_DONE
            if found and (error := self._error(found, now)):
                print(f"{self._thing.name}: {error}", file=sys.stderr, flush=True)
                return EXIT_BAD_CONFIG
            self._show(found, now)
            if stopped.wait(POLL_S):
                return EXIT_PREEMPTED

    def _error(self, found: PreparationState, now: float) -> str:
        fresh = found != self._first or now - self._began >= self._settle_s
        if found.state == FAILED and fresh:
            return f"{self._thing.work} has failed: {found.text}"
        if now - self._changed >= self._silent_s:
            return (
                f"{self._thing.work} has reported nothing for {self._silent_s / 60:.0f} minutes, its last "
                f"activity: {found.text}; {self._thing.silent}"
            )
        return ""

    def _show(self, found: PreparationState | None, now: float) -> None:
        if now - self._shown < SHOW_S and (self._changed < self._shown or found is None):
            return
        self._shown = now
        text = found.text if found else "its Job has not started"
        attempt = f" (attempt {found.attempt})" if found and found.attempt > 1 else ""
        self._say(f"waits for {self._thing.work}: {text}{attempt}")

    def _say(self, text: str) -> None:
        print(f"{self._thing.name}: {text}", flush=True)


def _parse() -> argparse.Namespace:
    parser = Parser(
        prog="python -m trainer.prepare.wait",
        description="Wait until a Job has prepared the run's dataset, or fetched its model.",
    )
    parser.add_argument(
        "--what", choices=sorted(THINGS), default=DATASET.name, help="default: %(default)s"
    )
    parser.add_argument("--state", required=True, type=Path, metavar="FILE", help="its state file")
    parser.add_argument(
        "--settle",
        type=float,
        default=SETTLE_S,
        metavar="SECONDS",
        help="believe an earlier failure after this time (default: %(default)g)",
    )
    parser.add_argument(
        "--silent",
        type=float,
        default=SILENT_S,
        metavar="SECONDS",
        help="give up a preparation that reports nothing (default: %(default)g)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
