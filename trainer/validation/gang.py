"""This node's part of a check by ranks of several nodes.

It starts the ranks with `trainyard.launch`, as runs do, waits for them with a timeout, and reports
the result. A rank that dies or never joins is reported as a cause.
"""

from __future__ import annotations

import collections
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, NoReturn

from trainer.validation import host, transport
from trainer.validation.consistency import Finding, Verdict, report_verdict
from trainyard import contract
from trainyard.contract import EXIT_PREEMPTED

_LAST_LINES: Final = 20
"""Lines of the launcher's output kept to find the cause."""
_GRACE_S: Final = 10
"""Time for the ranks to end after SIGTERM."""
_NOT_MET: Final = re.compile(r"Rendezvous\w*Error:?(.*)")
"""torchrun's line for a failed rendezvous, with its reason."""

INTERRUPTED: Final = Finding(cause="told to stop before it was done", remedy="start it again")


RESULTS_ENV: Final = "TRAINYARD_VALIDATION_RESULTS"
"""Folder where ranks write their results."""
OUTCOME: Final = "outcome.json"
"""Result of the node's first rank: `finding` and `facts`."""
FAILED: Final = "failed-"
"""Prefix of files with the error of a failed rank; its number follows."""


@dataclass(frozen=True, kw_only=True)
class Gang:
    """Members and rendezvous of a gang; equal in all its pods."""

    nodes: int
    processes: int
    """Ranks per node."""
    job: str
    """Id of the rendezvous."""
    leader: str = ""
    """Host name of the first pod; empty for one node."""
    port: int = 0
    """Rendezvous port on the leader."""
    device: str = "auto"
    """auto, cpu or cuda."""
    join_s: int = 300
    """Rendezvous timeout: pods of a gang may start minutes apart."""
    collective_s: float = 60.0
    """Timeout of a collective."""
    work_s: int = 600
    """Timeout of the check after the rendezvous."""

    @property
    def patience_s(self) -> int:
        return self.join_s + self.work_s

    def command(self, check: str, expect: str) -> list[str]:
        return [
            *(sys.executable, "-m", "trainyard.launch", f"--ranks={self.processes}"),
            *(["--launcher=torchrun", f"--join-seconds={self.join_s}"] if self.leader else []),
            *("--", "-m", "trainer.validation.ranks", check),
            f"--device={self.device}",
            f"--timeout={self.collective_s}",
            f"--expect={expect}",
        ]

    def environment(self) -> dict[str, str]:
        """Return the launcher's environment: where the nodes meet, and nothing else of the pod's own run."""
        ours = {place.variable for place in contract.PLACEHOLDERS.values()}
        others = {name: value for name, value in os.environ.items() if name not in ours}
        return others | {
            contract.NODES_ENV: str(self.nodes),
            contract.RUN_ID_ENV: self.job,
            contract.RENDEZVOUS_HOST_ENV: self.leader or "127.0.0.1",
            contract.RENDEZVOUS_PORT_ENV: str(self.port),
            contract.NOTICE_SECONDS_ENV: str(_GRACE_S + contract.LAUNCHER_EXIT_S),
        }


@dataclass(kw_only=True)
class LaunchResult:
    code: int
    in_time: bool = True
    interrupted: bool = False
    output: list[str] = field(default_factory=list)


def run_check(gang: Gang, validation: str, check: str, expect: str) -> Verdict:
    """Run this node's part of `check`; never raises for failures of ranks."""
    with tempfile.TemporaryDirectory(prefix="trainyard-validation-") as folder:
        ended = _launch(gang, gang.command(check, expect), Path(folder))
        return judge(gang, validation, ended, Path(folder))


def judge(gang: Gang, validation: str, ended: LaunchResult, folder: Path) -> Verdict:
    """Return the ranks' result, or why there is none."""
    outcome = folder / OUTCOME
    if ended.code == 0 and outcome.exists():
        told: dict[str, Any] = json.loads(outcome.read_text())
        finding = Finding(**told["finding"]) if told["finding"] else None
        return Verdict(validation=validation, finding=finding, facts=told["facts"])
    why = [file.read_text() for file in sorted(folder.glob(f"{FAILED}*"))]
    return Verdict(validation=validation, finding=_why(gang, ended, why), facts=host.host_facts())


def _why(gang: Gang, ended: LaunchResult, failures: list[str]) -> Finding:
    """Return the cause of an unfinished check, the most certain first."""
    meeting = [found[1].strip() for line in ended.output if (found := _NOT_MET.search(line))]
    if ended.interrupted:
        return INTERRUPTED
    if ended.code in (128 + signal.SIGKILL, 128 + signal.SIGSEGV, 128 + signal.SIGBUS):
        return Finding(
            cause=f"a rank of this node was ended by {signal.Signals(ended.code - 128).name}",
            remedy="look for OOMKilled in the pod's status and for XID errors of its node",
        )
    if meeting:
        return _of_meeting(gang, meeting[-1])
    if failures:
        return _of_a_rank(failures[0])
    if ended.code == EXIT_PREEMPTED:
        # Nobody told this node to stop: torch's agent ends its ranks with SIGTERM when it loses the other nodes.
        return _lost("the launcher ended the ranks of this node")
    if not ended.in_time:
        return Finding(
            cause=f"not done within {gang.patience_s} s",
            remedy="look at the other pods' logs for the rank that hangs",
        )
    last = next((line for line in reversed(ended.output) if line.strip()), "nothing")
    return Finding(
        cause=f"its launcher ended with {ended.code}, and last said: {last.strip()}",
        remedy="read the log above this line",
    )


def _of_meeting(gang: Gang, reason: str) -> Finding:
    place = f"{gang.leader}:{gang.port}"
    # torch's RendezvousConnectionError; a timeout does not mention the connection.
    if "connection" in reason.lower():
        return Finding(
            cause=f"the place to meet, {place}, cannot be reached: {reason}",
            remedy="look at the log of the gang's first pod: it ended before the others, or network "
            "policies, security groups or name resolution keep them apart",
        )
    return Finding(
        cause=f"the {gang.nodes} nodes did not meet at {place} within {gang.join_s} s",
        remedy="see whether all pods of the gang run, and what keeps them apart: network policies, "
        "security groups, name resolution",
    )


def _of_a_rank(failure: str) -> Finding:
    lowered = failure.lower()
    if "out of memory" in lowered:
        return Finding(cause=failure, remedy="see what else holds memory of this node's GPUs")
    if any(word in lowered for word in ("gloo", "nccl", "connection", "timed out", "timeout")):
        return _lost(failure)
    return Finding(cause=failure, remedy="read the log above this line")


def _lost(said: str) -> Finding:
    return Finding(
        cause=f"another rank is gone or hangs, or cannot be reached: {said}",
        remedy="look at the other pods' logs for the one that ended first; if none did, check "
        "interface, MTU, network policies and security groups",
    )


def _launch(gang: Gang, command: list[str], results: Path) -> LaunchResult:
    environment = (
        gang.environment() | {RESULTS_ENV: str(results)} | transport.log_environment(results)
    )
    lines: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
    ended, children = LaunchResult(code=1), list[subprocess.Popen[str]]()

    def stop(*_: object) -> None:
        ended.interrupted = True
        for child in children:
            child.terminate()

    # Before there is a child: as PID 1 of a container this process ignores SIGTERM by default.
    before = signal.signal(signal.SIGTERM, stop)
    try:
        child = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        children.append(child)
        if ended.interrupted:
            child.terminate()
        assert child.stderr is not None
        reader = threading.Thread(target=_echo, args=(child.stderr, lines), daemon=True)
        reader.start()
        _wait(child, gang.patience_s, ended)
    finally:
        signal.signal(signal.SIGTERM, before)
    reader.join(_GRACE_S)
    ended.output = list(lines)
    return ended


def _wait(child: subprocess.Popen[str], patience_s: float, ended: LaunchResult) -> None:
    """Wait for the launcher; end it after the timeout."""
    try:
        ended.code = child.wait(patience_s)
    except subprocess.TimeoutExpired:
        ended.in_time = False
        child.terminate()
        try:
            child.wait(2 * _GRACE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _echo(stream: IO[str], kept: collections.deque[str]) -> None:
    for line in stream:
        sys.stderr.write(line)
        kept.append(line)


def gate_port(port: int) -> int:
    """Return a rendezvous port other than the run's, whose socket could still be closing at its start."""
    first = contract.RENDEZVOUS_PORT_BASE
    return first + (port + 1 - first) % contract.RENDEZVOUS_PORT_COUNT


def run_gate(gang: Gang, gbps: float, command: Sequence[str]) -> int:
    """Exec a run's command in its pod if the gang reaches `gbps` GB/s of bus bandwidth; else return the exit code.

    It runs with the run's environment, GPUs and network. Why not before admission: docs/adr/08-runs.md.
    """
    verdict = run_check(gang, "collective", "collective", json.dumps({"gbps": gbps}))
    code = report_verdict(verdict)
    if code == 0:
        exec_command(command)
    return EXIT_PREEMPTED if verdict.finding == INTERRUPTED else code


def exec_command(command: Sequence[str]) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(command[0], list(command))
