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
from pathlib import Path
from typing import Final

from trainer.cli import Parser
from trainer.prepare.state import FAILED, READY, read_state
from trainyard.contract import EXIT_BAD_CONFIG, EXIT_DONE, EXIT_PREEMPTED

POLL_S: Final = 1.0
SHOW_S: Final = 30.0
"""Seconds between two lines without news."""
SETTLE_S: Final = 30.0
"""A failure from before the start of this process is final after so long: a new Job may be about to begin. Less
than the sandbox lets a pod become ready in: its next attempt would wait as long again."""
SILENT_S: Final = 1800.0
"""After so long without news an attempt was killed: 360 times as long as it takes to report."""


DATASET: Final = "dataset"
_WORDS: Final = {
    DATASET: (
        "the preparation",
        "version {} is prepared",
        "its Job was removed or exceeded its memory: see dataset.resources",
    ),
    "model": ("the download", "{} is fetched", "its Job was removed"),
}
"""What its Job does, the message when it is there, and why the Job may have reported nothing."""


def main() -> int:
    """Wait for it; returns the exit code."""
    arguments = _parse()
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    return wait(arguments.state, SETTLE_S, SILENT_S, stopped, arguments.what)


def wait(
    file: Path, settle_s: float, silent_s: float, stopped: threading.Event, what: str = DATASET
) -> int:
    """Follow the state file of a preparation; return the exit code once it is known."""
    work, ready, silent = _WORDS[what]
    first = last = read_state(file)
    began = changed = time.monotonic()
    shown = float("-inf")
    while True:
        found, now = read_state(file), time.monotonic()
        if found != last:
            last, changed = found, now
        if found and found.state == READY:
            print(f"{what}: {ready.format(found.text)}", flush=True)
            return EXIT_DONE
        error = ""
        if found and found.state == FAILED and (found != first or now - began >= settle_s):
            error = f"has failed: {found.text}"
        elif found and now - changed >= silent_s:
            error = (
                f"has reported nothing for {silent_s / 60:.0f} minutes, its last activity: "
                f"{found.text}; {silent}"
            )
        if error:
            print(f"{what}: {work} {error}", file=sys.stderr, flush=True)
            return EXIT_BAD_CONFIG
        if now - shown >= SHOW_S or (found and changed >= shown):
            shown = now
            text = found.text if found else "its Job has not started"
            attempt = f" (attempt {found.attempt})" if found and found.attempt > 1 else ""
            print(f"{what}: waits for {work}: {text}{attempt}", flush=True)
        if stopped.wait(POLL_S):
            return EXIT_PREEMPTED


def _parse() -> argparse.Namespace:
    parser = Parser(
        prog="python -m trainer.prepare.wait",
        description="Wait until a Job has prepared the run's dataset, or fetched its model.",
    )
    parser.add_argument(
        "--what", choices=sorted(_WORDS), default=DATASET, help="default: %(default)s"
    )
    parser.add_argument("--state", required=True, type=Path, metavar="FILE", help="its state file")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
