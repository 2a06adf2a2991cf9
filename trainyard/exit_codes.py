"""Exit codes of the ranks of a node, and the one exit code of the node that follows from them.

Launchers do not pass on how a rank ended: torchrun ends with 1 whatever it was. So each rank leaves
its result in a folder that the launcher of the node names in the environment:

    rank-N            how and when rank N ended
    process-N         process ids of rank N, to signal it
    asked-N           when rank N was asked to stop
    config-errors-N   what is wrong with the configuration, printed once per node
    notice            when the launcher asked all ranks to stop
    finished          the program has done all its work: 0 after a notice is not a request to resume

docs/failures.md has the table of outcomes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from trainyard.contract import (
    EXIT_BAD_CONFIG,
    EXIT_DIR_ENV,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_PREEMPTED,
)

NOTICE_FILE: Final = "notice"
FINISHED_FILE: Final = "finished"
_HANG_FILE: Final = "hang"
_SHELL_SIGNAL: Final = 128
"""A shell reports a process that a signal ended as 128 plus the signal's number."""
_SIGNALS_MAX: Final = 64


@dataclass(frozen=True)
class RankResult:
    rank: int
    code: int
    """As subprocess gives it: negative for a signal."""
    ended: float
    """Unix seconds."""

    @property
    def signal(self) -> int:
        """Number of the signal that ended it, also as a shell reports it; 0 for none."""
        if self.code < 0:
            return -self.code
        number = self.code - _SHELL_SIGNAL
        return number if 0 < number <= _SIGNALS_MAX else 0

    @property
    def stopped(self) -> bool:
        """Whether it ended on request: with 75, or by SIGTERM."""
        return self.code == EXIT_PREEMPTED or self.signal == signal.SIGTERM

    @property
    def failed(self) -> bool:
        return self.code != EXIT_DONE and not self.stopped

    @property
    def exit_code(self) -> int:
        return self.code if self.code >= 0 else _SHELL_SIGNAL - self.code


def node_exit_code(
    results: Sequence[RankResult],
    expected_ranks: int,
    launcher_code: int,
    notice: float | None = None,
    *,
    done: bool = True,
) -> int:
    """Return the exit code of a node from its ranks' results.

    78 if any rank ended with it. A failure before any request to stop is the node's code. 0 if every
    rank ended with it and the program is `done` (`ExitDir.is_done`). Otherwise 75 after a request to
    stop: what fails then does so because of it. `notice`: the first request to stop, in Unix seconds.
    Ranks without a result were killed. `launcher_code` decides only when no result does.
    """
    if any(result.code == EXIT_BAD_CONFIG for result in results):
        return EXIT_BAD_CONFIG
    requests = [result.ended for result in results if result.stopped]
    requests += [] if notice is None else [notice]
    failures = sorted((r for r in results if r.failed), key=lambda result: result.ended)
    if failures and failures[0].ended < min(requests, default=float("inf")):
        return failures[0].exit_code
    if len(results) >= expected_ranks and all(result.code == EXIT_DONE for result in results):
        return EXIT_DONE if done else EXIT_PREEMPTED
    return EXIT_PREEMPTED if requests else launcher_code or EXIT_FAILED


@dataclass(frozen=True)
class ExitDir:
    """The folder in which the ranks of a node leave their results."""

    path: Path

    @classmethod
    def from_environment(cls) -> ExitDir | None:
        """Return the folder that the launcher named; None without a launcher."""
        folder = os.environ.get(EXIT_DIR_ENV)
        return cls(Path(folder)) if folder else None

    def clear(self) -> None:
        """Remove what an earlier start of the ranks left; a request to stop stays."""
        for file in self.path.iterdir():
            if file.name != NOTICE_FILE:
                file.unlink()

    def write_result(self, result: RankResult) -> None:
        self._write(f"rank-{result.rank}", json.dumps(asdict(result)))

    def add_result(self, result: RankResult) -> None:
        """Record how a rank ended as its parent saw it; what the rank itself recorded stays."""
        if not (self.path / f"rank-{result.rank}").exists():
            self.write_result(result)

    def results(self) -> list[RankResult]:
        found = [RankResult(**json.loads(text)) for text in self._texts("rank-*")]
        return sorted(found, key=lambda result: result.rank)

    def write_process(self, rank: int, pids: Sequence[int]) -> None:
        """Record the process ids of a rank: its parent process and the program."""
        self._write(f"process-{rank}", json.dumps({"host": os.uname().nodename, "pids": pids}))

    def processes(self) -> dict[int, list[int]]:
        """Return the process ids of the ranks on this host, by rank."""
        found = {}
        for file in self.path.glob("process-*"):
            values = json.loads(file.read_text(encoding="utf-8"))
            if values["host"] == os.uname().nodename:
                found[int(file.name.partition("-")[2])] = list(values["pids"])
        return found

    def write_notice(self, moment: float) -> None:
        """Ask all ranks to stop, those that start later included."""
        self._write(NOTICE_FILE, json.dumps(moment))

    def has_notice(self) -> bool:
        return (self.path / NOTICE_FILE).exists()

    def write_hang(self, why: str) -> None:
        """Record that the launcher stops all ranks because they make no progress."""
        self._write(_HANG_FILE, why)

    def hang(self) -> str:
        """Return what `write_hang` recorded; empty without."""
        return "".join(self._texts(_HANG_FILE))

    def write_finished(self) -> None:
        self._write(FINISHED_FILE, "")

    def is_done(self) -> bool:
        """Return whether the program is done if all ranks ended with 0.

        It said so, or one of them ended before it was asked to stop. Otherwise 0 may mean that it saved
        its state because of a notice.
        """
        if (self.path / FINISHED_FILE).exists():
            return True
        return any(not (self.path / f"asked-{one.rank}").exists() for one in self.results())

    def write_request(self, rank: int) -> None:
        self._write(f"asked-{rank}", json.dumps(time.time()))

    def first_request(self) -> float | None:
        """Return when the ranks, or any of them, were first asked to stop; None if none was."""
        moments = [json.loads(t) for name in (NOTICE_FILE, "asked-*") for t in self._texts(name)]
        return min(moments, default=None)

    def write_config_errors(self, rank: int, text: str) -> None:
        self._write(f"config-errors-{rank}", text)

    def config_errors(self) -> list[str]:
        return sorted(set(self._texts("config-errors-*")))

    def _write(self, name: str, text: str) -> None:
        # By a rename: the launcher reads while ranks write. Without a folder there is no launcher.
        temporary = self.path / f".{name}-{os.getpid()}"
        with contextlib.suppress(FileNotFoundError):
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(self.path / name)

    def _texts(self, pattern: str) -> list[str]:
        return [file.read_text(encoding="utf-8") for file in sorted(self.path.glob(pattern))]


def rank_of_environment() -> int:
    """Return this process's rank: torchrun's RANK, or that of Open MPI; 0 without either."""
    for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"):
        if (text := os.environ.get(name, "")).isdigit():
            return int(text)
    return 0


def report_exit_code(code: int) -> None:
    """Record this rank's exit code for the launcher, if there is one; 0 says that the program is done."""
    if folder := ExitDir.from_environment():
        if code == EXIT_DONE:
            folder.write_finished()
        folder.write_result(RankResult(rank_of_environment(), code, time.time()))


def report_finished() -> None:
    """Record for the launcher, if there is one, that the program has done all its work."""
    if folder := ExitDir.from_environment():
        folder.write_finished()


def report_request() -> None:
    """Record for the launcher, if there is one, that this rank was asked to stop."""
    if folder := ExitDir.from_environment():
        folder.write_request(rank_of_environment())


def report_config_errors(text: str) -> None:
    """Report errors that every rank finds, so that they are printed once.

    The launcher prints them if there is one: it ends the other ranks with the first that fails.
    """
    rank = rank_of_environment()
    if folder := ExitDir.from_environment():
        folder.write_config_errors(rank, text)
    elif rank == 0:
        print(text, file=sys.stderr)
