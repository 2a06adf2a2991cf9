"""The parent process of one rank: `python3 -m trainyard.rank -- COMMAND`.

Every launcher starts ranks through it: torchrun, accelerate, deepspeed, mpirun and python. It
forwards signals to the program, ends it at the deadline of a notice, and records how it really ended
for `trainyard.launch`, since most launchers reduce that to 1.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trainyard import contract, processes, tracking
from trainyard.contract import EVENTS_FILE, EXIT_DONE, METRICS_FILE, RUN_DIR_ENV
from trainyard.exit_codes import ExitDir, RankResult, rank_of_environment
from trainyard.hangs import RankWatch
from trainyard.run_logs import EventLog, last_line

_POLL_S: Final = 0.5
"""Interval between two looks at the launcher's notice, which reaches ranks on other hosts, too."""
_LEFTOVER_S: Final = 5.0
"""Time for processes that a finished program has left behind, before SIGTERM and again before SIGKILL."""
_MPI_VARIABLES: Final = {
    "RANK": "OMPI_COMM_WORLD_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    "LOCAL_WORLD_SIZE": "OMPI_COMM_WORLD_LOCAL_SIZE",
}
"""torch's variables, by which Open MPI sets the same."""


def main(arguments: Sequence[str]) -> int:
    """Run the command that follows `--`; return its exit code, 128 plus the number for a signal."""
    processes.block_signals()
    if not arguments or arguments[0] != "--" or len(arguments) < 2:
        print("usage: python3 -m trainyard.rank -- COMMAND [ARGUMENT ...]", file=sys.stderr)
        return contract.EXIT_BAD_CONFIG
    processes.die_with_parent(signal.SIGTERM)
    processes.adopt_orphans()
    rank = rank_of_environment()
    world = int(_environment().get("WORLD_SIZE", "1"))
    parent = _RankParent(
        rank,
        ExitDir.from_environment(),
        deadline_s=stop_deadline_s(os.environ),
        watch=RankWatch.of_rank(rank, world),
    )
    result = parent.run(arguments[1:])
    return result.exit_code


def stop_deadline_s(environment: Mapping[str, str]) -> float:
    """Return the seconds from a notice to the SIGKILL of a rank."""
    given = environment.get(contract.NOTICE_SECONDS_ENV) or contract.DEFAULT_NOTICE_S
    return max(1.0, float(given) - contract.LAUNCHER_EXIT_S)


@dataclass
class _RankParent:
    rank: int
    folder: ExitDir | None
    deadline_s: float
    pid: int = 0
    code: int | None = None
    """Of the program; None while it runs."""
    ended: float = 0.0
    """When the program ended, in Unix seconds."""
    asked: float | None = None
    """When it was asked to stop, in monotonic seconds."""
    tracker: subprocess.Popen[bytes] | None = None
    """Here and not in the program: only its parent sees how it ended."""
    watch: RankWatch | None = None

    def run(self, command: Sequence[str]) -> RankResult:
        if self.folder and self.folder.has_notice():
            return self._record(contract.EXIT_PREEMPTED)  # asked to stop before it began
        try:
            environment = _environment() | _import_path(command)
            if self.watch:
                environment |= self.watch.environment(environment)
            self.pid = processes.start(command, environment, _folder())
        except OSError as error:
            print(f"rank {self.rank}: {command[0]}: {error.strerror}", file=sys.stderr)
            return self._record(contract.EXIT_BAD_CONFIG)
        if self.rank == 0:
            self.tracker = tracking.start(os.environ)
        if self.folder:
            self.folder.write_process(self.rank, [os.getpid(), self.pid])
        while self.code is None:
            self._wait()
            if self.watch and self.asked is None:
                self.watch.look(time.monotonic())
            if self.asked is None and self.folder and self.folder.has_notice():
                self._forward(signal.SIGTERM)
            if self._late():
                processes.send(signal.SIGKILL, [self.pid], groups=True)
        self._end_leftovers()
        result = self._record(self.code)
        if self.rank == 0 and contract.READY_FILE_ENV not in os.environ:  # else other groups go on
            hang = self.folder.hang() if self.folder else ""
            record_end(result, hang, preempted=self._is_preempted(result))
        self._wait_for_other_ranks()
        if self.tracker:
            left = self.deadline_s - (time.monotonic() - self.asked) if self.asked else math.inf
            tracking.close(self.tracker, max(0.1, left / 2))
        return result

    def _wait(self) -> None:
        number = processes.wait_for_signal(_POLL_S)
        if number in processes.FORWARDED:
            self._forward(number)
        code = processes.reap().get(self.pid)
        if code is not None:
            self.code, self.ended = code, time.time()

    def _forward(self, number: signal.Signals) -> None:
        # To the program alone: it decides about its data loaders. What outlives it follows later.
        if self.asked is None:
            self.asked = time.monotonic()
            if self.folder and self.code is None:
                self.folder.write_request(self.rank)
        processes.send(number, [self.pid])

    def _late(self) -> bool:
        return self.asked is not None and time.monotonic() > self.asked + self.deadline_s

    def _end_leftovers(self) -> None:
        """Wait for processes that the program left, then end them, before its result counts.

        If the notice itself ended the program, such as a shell, a process that handles SIGTERM may be the
        one that trains, and has until the deadline to save.
        """
        begun, told = time.monotonic(), False
        while left := self._leftovers():
            seconds = time.monotonic() - begun
            handlers = (processes.handles(pid, signal.SIGTERM) for pid in left)
            saving = self.code == -signal.SIGTERM and any(handlers)
            if self._late() or (seconds > 2 * _LEFTOVER_S and not saving):
                processes.send(signal.SIGKILL, [self.pid], groups=True)
                processes.send(signal.SIGKILL, left)
            elif not told and (self.asked is not None or seconds > _LEFTOVER_S):
                told = True
                processes.send(signal.SIGTERM, [self.pid], groups=True)
            self._wait()

    def _leftovers(self) -> list[int]:
        own = self.tracker and self.tracker.pid
        return [pid for pid in processes.children() if pid != own]

    def _record(self, code: int) -> RankResult:
        result = RankResult(self.rank, code, self.ended or time.time())
        if self.folder:
            self.folder.add_result(result)
        return result

    def _is_preempted(self, result: RankResult) -> bool:
        """Return whether the program ended because of a notice; an error during one does not count."""
        if result.code == contract.EXIT_DONE:
            return self.asked is not None and not (self.folder and self.folder.is_done())
        noticed = self.folder is not None and self.folder.has_notice()
        return result.stopped or (noticed and result.code != contract.EXIT_BAD_CONFIG)

    def _wait_for_other_ranks(self) -> None:
        """After a notice: some launchers kill all ranks when the first ends, while others still save."""
        ranks = int(_environment().get("LOCAL_WORLD_SIZE", "1"))
        limit = (self.asked or time.monotonic()) + self.deadline_s
        while (
            (self.asked is not None or self.code == contract.EXIT_PREEMPTED)
            and self.folder
            and time.monotonic() < limit
            and len(list(self.folder.path.glob("rank-*"))) < ranks
        ):
            processes.wait_for_signal(_POLL_S)


def _environment() -> dict[str, str]:
    """Return the program's environment, with torch's variables under mpirun."""
    values = {"PYTHONUNBUFFERED": "1", **os.environ}
    for name, source in _MPI_VARIABLES.items():
        if source in values:
            values[name] = values[source]
    if "OMPI_COMM_WORLD_RANK" in values:
        values.setdefault("MASTER_ADDR", values.get(contract.RENDEZVOUS_HOST_ENV, "127.0.0.1"))
        values.setdefault("MASTER_PORT", values.get(contract.RENDEZVOUS_PORT_ENV, "29400"))
    return values


def _import_path(command: Sequence[str]) -> dict[str, str]:
    """Return the variable by which a program finds the modules of its source; none where Python does by itself.

    It does for a script at the top of the source, and for `-m`. On PYTHONPATH the folder would precede the
    standard library already while the interpreter starts.
    """
    folder = _folder()
    first = command[1] if command[0] == sys.executable and len(command) > 1 else "/"
    if folder is None or "/" not in first:
        return {}
    return {"PYTHONPATH": ":".join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}


def _folder() -> Path | None:
    """Return the unpacked source; None without one: the program starts where its parent did."""
    folder = os.environ.get(contract.SOURCE_ENV)
    return Path(folder) if folder else None


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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
