"""Trainyard's runtime for training programs; requires the standard library only.

    import trainyard

    found = trainyard.checkpoints.latest()               # verified, the same on every rank
    step = found.step if found else 0
    while step < steps:
        ...
        step += 1
        trainyard.log(step=step, loss=loss, tokens=tokens)
        if trainyard.notice.requested():                 # agree on it between ranks first
            with trainyard.checkpoints.save(step) as folder:
                ...
            trainyard.exit_preempted()

Outside a run nothing is reported, and checkpoints go to ./checkpoints. docs/runtime.md has the details.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from trainyard import checkpoints, notice, reporting
from trainyard.contract import EXIT_PREEMPTED
from trainyard.exit_codes import report_exit_code
from trainyard.reporting import log
from trainyard.run_info import RunInfo, run

__all__ = ["RunInfo", "checkpoints", "exit_preempted", "log", "notice", "run"]


def exit_preempted() -> NoReturn:
    """End this process with 75: it stopped because of a notice, and its state is saved.

    Immediately, without the interpreter's teardown, which can hang when other ranks are gone.
    """
    notice.acknowledge()
    reporting.close()
    report_exit_code(EXIT_PREEMPTED)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_PREEMPTED)
