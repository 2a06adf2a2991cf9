"""The gate of a run: its own pods measure their collectives before they start training.

It runs with the run's environment, GPUs and network, and execs the run's command when the bandwidth is
sufficient. Why not before admission: docs/adr/08-runs.md.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from trainer.validation import gang
from trainer.validation.gang import Gang
from trainer.validation.verdict import Verdict, report_verdict
from trainyard.contract import EXIT_PREEMPTED, RENDEZVOUS_PORT_BASE, RENDEZVOUS_PORT_COUNT


def gate_port(port: int) -> int:
    """Return a rendezvous port other than the run's, whose socket could still be closing at its start."""
    return RENDEZVOUS_PORT_BASE + (port + 1 - RENDEZVOUS_PORT_BASE) % RENDEZVOUS_PORT_COUNT


def run_gate(taking_part: Gang, gbps: float, command: Sequence[str]) -> int:
    """Exec `command` if the gang reaches `gbps` GB/s of bus bandwidth; else return the exit code."""
    verdict = gang.run_check(taking_part, "collective", "collective", json.dumps({"gbps": gbps}))
    code = report_verdict(verdict)
    if code == 0:
        exec_command(command)
    return EXIT_PREEMPTED if _is_interrupted(verdict) else code


def _is_interrupted(verdict: Verdict) -> bool:
    return verdict.finding == gang.INTERRUPTED


def exec_command(command: Sequence[str]) -> NoReturn:
    """Replace this process by the run's command."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(command[0], list(command))
