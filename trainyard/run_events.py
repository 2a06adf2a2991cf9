"""The last event of an attempt of a program that reports: only its parent process sees how it ended."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from trainyard.contract import EVENTS_FILE, EXIT_DONE, METRICS_FILE, RUN_DIR_ENV
from trainyard.exit_codes import RankResult
from trainyard.run_logs import EventLog, last_line

_LAST: Final = ("finished", "failed")


def record_end(result: RankResult, hang: str = "", *, preempted: bool = False) -> None:
    """Add `finished` or `failed` to the run's events, unless the program did or reports nothing.

    `hang`: why the launcher ended the ranks, if they made no progress. `preempted`: whether the program
    ended because of a notice. A failure to write is one line: the rank's result must not depend on it.
    """
    folder = os.environ.get(RUN_DIR_ENV)
    if not folder:
        return
    last = last_line(Path(folder, EVENTS_FILE))
    if last is None or last.get("event") in _LAST:
        return
    step = (last_line(Path(folder, METRICS_FILE)) or last).get("step", 0)
    try:
        events = EventLog(Path(folder, EVENTS_FILE), int(last["attempt"]), enabled=True)
        if hang:
            events.write("failed", step, error=hang)
        elif preempted:
            events.write("finished", step, reason="preempted", code=result.exit_code)
        elif result.code == EXIT_DONE:
            events.write("finished", step, reason="done")
        else:
            events.write("failed", step, error=f"rank {result.rank} ended with {result.exit_code}")
        events.close()
    except (OSError, KeyError, ValueError) as error:
        print(f"{folder}/{EVENTS_FILE}: the end is not recorded: {error}", file=sys.stderr)
