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
    trainyard.finished()                                 # a notice that comes now changes nothing

Outside a run nothing is reported, and checkpoints go to ./checkpoints. docs/runtime.md has the details.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from trainyard import checkpoints, notice, reporting
from trainyard.contract import EXIT_PREEMPTED
from trainyard.exit_codes import report_exit_code, report_finished
from trainyard.reporting import log
from trainyard.run_info import RunInfo, run

__all__ = ["RunInfo", "checkpoints", "exit_preempted", "finished", "log", "notice", "run"]


def finished() -> None:
    """Say that the program has done all its steps and has only to end; any rank, or all of them.

    Waits for the checkpoint in flight.

    After a notice an end with 0 then finishes the run. Without this call it restarts, since many
    programs save on SIGTERM and end with 0.
    """
    checkpoints.settle()
    report_finished()


def exit_preempted() -> NoReturn:
    """End this process with 75: it stopped because of a notice, and its state is saved.

    Immediately, without the interpreter's teardown, which can hang when other ranks are gone.
    """
    notice.acknowledge()
    checkpoints.settle()
    reporting.close()
    report_exit_code(EXIT_PREEMPTED)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_PREEMPTED)
