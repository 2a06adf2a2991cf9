"""Restart policy of pods whose object treats all exit codes alike, or restarts too slowly.

`python3 -m trainyard.restarts --job-kind KIND --max-restarts N --state FILE [--leader] -- COMMAND` is the parent
of a pod's command. 75 restarts and does not count, 78 ends the run, other codes count up to N restarts. The count
is in FILE, since no pod lasts; only the leader's pod writes it, because the pods of a gang fail together.

- pytorchjob: Training Operator replaces a pod that ends with 128 or more (restartPolicy ExitCode) and fails the
  job for lower codes. Codes are translated accordingly.
- indexed-job: a Job delays the replacement of a failed pod by 10 s times two to the number of all failed pods, of
  whatever cause. The command is repeated in the same pods, so that only a lost node costs a pod.
- mpijob: the Job of MPI Operator's launcher counts every code. The command is repeated in the same pod, once
  every host of the hostfile accepts ssh.
- job, jobset of one node: the command is repeated in the same pod where that may help (restart_budget.py).
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from trainyard.contract import (
    EXIT_BAD_CONFIG,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_PREEMPTED,
    RESTARTS_IN_POD_ENV,
)
from trainyard.restart_budget import PodRestarts, RestartBudget, final_code, report

REPLACED: Final = 128
"""First exit code for which Training Operator replaces the pod."""
HOSTFILE_ENV: Final = "OMPI_MCA_orte_default_hostfile"
"""Variable with MPI Operator's list of hosts."""
INDEX_ENV: Final = "JOB_COMPLETION_INDEX"
"""Variable with the index of an Indexed Job's pod."""
_POLL_S: Final = 1.0
_REPORT_S: Final = 60.0


class Parent:
    """Runs the command and forwards signals to it."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._child: subprocess.Popen[bytes] | None = None
        self.asked_to_stop = False
        signal.signal(signal.SIGTERM, self._forward)
        signal.signal(signal.SIGINT, self._forward)

    def run(self) -> int:
        """Run the command once; return its exit code, 128 + N after signal N. 127 if it cannot start."""
        try:
            self._child = subprocess.Popen(self._command)
        except OSError as error:
            report(f"{self._command[0]}: {error.strerror}")
            return 127
        if self.asked_to_stop:  # between two runs
            self._child.send_signal(signal.SIGTERM)
        code = self._child.wait()
        return code if code >= 0 else 128 - code

    def _forward(self, number: int, _frame: FrameType | None) -> None:
        self.asked_to_stop = True
        if self._child is not None and self._child.returncode is None:
            self._child.send_signal(number)


def main(argv: Sequence[str]) -> int:
    """Run the command by the rules of the job kind; return the pod's exit code."""
    options = _parser().parse_args(argv)
    parent = Parent(options.command)
    budget = RestartBudget(options.state, options.max_restarts)
    if options.job_kind in ("job", "jobset"):
        return _within_pod(parent, PodRestarts(budget))
    if options.job_kind == "mpijob":
        return _in_place(parent, budget, options.port)
    leads = options.leader or os.environ.get(INDEX_ENV) == "0"
    if options.job_kind == "indexed-job":
        return _repeated(parent, budget, leads=leads)
    return _translated(parent.run(), budget if leads else None)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m trainyard.restarts")
    kinds = ("indexed-job", "pytorchjob", "mpijob", "job", "jobset")
    parser.add_argument("--job-kind", choices=kinds, required=True)
    parser.add_argument("--max-restarts", type=int, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--leader", action="store_true")
    parser.add_argument("--port", type=int, default=22, help="of the workers' sshd")
    parser.add_argument("command", nargs="+")
    return parser


def _within_pod(parent: Parent, pod: PodRestarts) -> int:
    """Repeat the command of a gang of one pod where that may help; return the pod's exit code."""
    while True:
        os.environ[RESTARTS_IN_POD_ENV] = str(pod.restarts)
        pod.begin()
        code = pod.verdict(parent.run(), ending=parent.asked_to_stop)
        if code is not None:
            return code


def _translated(code: int, budget: RestartBudget | None) -> int:
    """Return a code that makes Training Operator end the job or replace the pod."""
    if code in (EXIT_DONE, EXIT_BAD_CONFIG):
        return code
    if code != EXIT_PREEMPTED and budget is not None and not budget.spend(code):
        return code if code < REPLACED else EXIT_FAILED
    return code if code >= REPLACED else code + REPLACED


def _repeated(parent: Parent, budget: RestartBudget, *, leads: bool) -> int:
    """Repeat the command on every node of the gang; the leader's pod ends the Job for all.

    Pods that restart earlier than others meet no one and try again; only the leader counts.
    """
    failure = EXIT_DONE
    while True:
        if (ended := budget.ended()) is not None:
            return ended or failure
        code = parent.run()
        if code in (EXIT_DONE, EXIT_BAD_CONFIG):
            if leads:  # nobody is left for the others to meet
                budget.end(code)
            return code
        if parent.asked_to_stop:
            return EXIT_PREEMPTED
        if code != EXIT_PREEMPTED:
            failure = final_code(code)
            if leads and not budget.spend(code):
                budget.end(failure)
                return failure
        report(f"the ranks ended with {code}; starting them again")
        time.sleep(_POLL_S)


def _in_place(parent: Parent, budget: RestartBudget, port: int) -> int:
    """Repeat the command until it is done, fails for good, or this pod is told to stop."""
    while True:
        if (ended := budget.ended()) is not None:  # in an earlier pod, which the Job has replaced
            return ended
        if not _await_hosts(parent, port):
            return EXIT_PREEMPTED
        code = parent.run()
        if parent.asked_to_stop:
            return code if code in (EXIT_DONE, EXIT_BAD_CONFIG) else EXIT_PREEMPTED
        if code == EXIT_DONE:
            return code
        final = code == EXIT_BAD_CONFIG
        if final or (code != EXIT_PREEMPTED and not budget.spend(code)):
            budget.end(code)
            return code
        report(f"the ranks ended with {code}; starting them again")


def _await_hosts(parent: Parent, port: int) -> bool:
    """Wait until every worker accepts ssh; False when told to stop."""
    hosts = _hosts()
    told = time.monotonic()
    while not parent.asked_to_stop:
        hosts = [host for host in hosts if not _accepts(host, port)]
        if not hosts:
            return True
        if time.monotonic() - told > _REPORT_S:
            told = time.monotonic()
            report(f"waiting for {', '.join(hosts)}")
        time.sleep(_POLL_S)
    return False


def _hosts() -> list[str]:
    path = os.environ.get(HOSTFILE_ENV)
    lines = Path(path).read_text(encoding="utf-8").splitlines() if path else []
    return [line.split()[0] for line in lines if line.strip()]


def _accepts(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=5.0):
            return True
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
