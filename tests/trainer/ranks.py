"""Real ranks of the trainer as forked processes: loaded once, started in a moment.

A rank is a fork of the test process, which has the trainer's modules loaded but has never computed
anything. Each runs `trainer.__main__` with the environment that torchrun would give it; a
hook may first break something in it. `launch` itself is tested apart, as a real command.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sandbox.ports import free_port
from tests import waiting

DEADLINE_S = 240.0
"""For anything that a test waits for; generous, because the machine may be busy."""

_LINE_BYTES = 65536
"""More than a line of metrics has."""

Hook = Callable[[int], None]
"""Called with the rank, in its process, before the trainer starts."""


def until(condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """The first truthy value of `condition`; fails with `what` when there is none in time."""
    return waiting.until(condition, what, deadline_s, every_s=0.002)


@dataclass
class RunFiles:
    """Contents of a run directory."""

    path: Path

    def metrics(self) -> list[dict[str, Any]]:
        """Whole lines of metrics.jsonl."""
        return _lines(self.path / "metrics.jsonl")

    def losses(self) -> list[float]:
        """By step; fails when a step is missing, repeated or out of order."""
        metrics = self.metrics()
        assert [line["step"] for line in metrics] == list(range(1, len(metrics) + 1))
        return [line["loss"] for line in metrics]

    def events(self, name: str) -> list[dict[str, Any]]:
        """All events of one name, oldest first."""
        return [e for e in _lines(self.path / "events.jsonl") if e["event"] == name]

    def evaluations(self) -> dict[int, float]:
        """Held-out losses by step."""
        return {e["step"]: e["loss"] for e in self.events("evaluated")}

    def last_step(self) -> int:
        """The newest step in metrics.jsonl, 0 for none."""
        content = _end_of(self.path / "metrics.jsonl")
        whole = content[: content.rfind(b"\n") + 1].splitlines()
        return int(json.loads(whole[-1])["step"]) if whole else 0

    def until_step(self, step: int, deadline_s: float = DEADLINE_S) -> None:
        """Returns once the run has written this step down; fails when it does not in time."""
        until(lambda: self.last_step() >= step, f"step {step}", deadline_s)


def _end_of(file: Path) -> bytes:
    """The end of a file, with its last line; empty when there is none."""
    try:
        with file.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _LINE_BYTES))
            return stream.read()
    except FileNotFoundError:
        return b""


def _lines(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    lines = file.read_text().split("\n")[:-1]  # the part after the last line break is not whole
    return [json.loads(line) for line in lines]


@dataclass
class Ranks:
    """The processes of one attempt."""

    pids: list[int]
    log: Path
    codes: dict[int, int] = field(default_factory=dict)
    """By rank, as subprocess gives them: negative for a signal."""

    def signal(self, number: signal.Signals, *ranks: int) -> None:
        """To the given ranks, or to all; those that have ended are left out."""
        for rank in ranks or range(len(self.pids)):
            self._poll(rank)
            if rank not in self.codes:
                os.kill(self.pids[rank], number)

    def wait(self, deadline_s: float = DEADLINE_S) -> list[int]:
        """All exit codes, by rank; kills what is left and fails when that takes too long."""
        try:
            until(self.all_ended, f"the ranks to end; output: {self.output()}", deadline_s)
        finally:
            self.end()
        return [self.codes[rank] for rank in range(len(self.pids))]

    def all_ended(self) -> bool:
        """Whether no rank runs any more."""
        for rank in range(len(self.pids)):
            self._poll(rank)
        return len(self.codes) == len(self.pids)

    def end(self) -> None:
        """Kill what still runs."""
        for rank, pid in enumerate(self.pids):
            self._poll(rank)
            if rank not in self.codes:
                os.kill(pid, signal.SIGKILL)
                _, status = os.waitpid(pid, 0)
                self.codes[rank] = os.waitstatus_to_exitcode(status)

    def output(self) -> str:
        """What all ranks printed."""
        return self.log.read_text() if self.log.exists() else ""

    def _poll(self, rank: int) -> None:
        if rank not in self.codes:
            pid, status = os.waitpid(self.pids[rank], os.WNOHANG)
            if pid:
                self.codes[rank] = os.waitstatus_to_exitcode(status)


def start(arguments: Sequence[str], world: int, log: Path, hook: Hook | None = None) -> Ranks:
    """Fork `world` ranks that run the trainer with these arguments."""
    _load()
    port = free_port()
    pids = [_fork(rank, world, port, arguments, log, hook) for rank in range(world)]
    return Ranks(pids, log)


def _load() -> None:
    """Import all that a rank needs: this is what takes seconds."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch._dynamo

    from trainer import assembly, groups, loop, preflight

    assert assembly and groups and loop and preflight and torch


def _fork(
    rank: int, world: int, port: int, arguments: Sequence[str], log: Path, hook: Hook | None
) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        _become_rank(rank, world, port, log)
        sys.argv = ["trainer", *arguments]
        from trainer.__main__ import main
        from trainyard.exit_codes import report_exit_code

        if hook:
            hook(rank)
        code = main()
        report_exit_code(code)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _become_rank(rank: int, world: int, port: int, log: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(world),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )


def held_before(step: int, acted: Path, then: Hook | None = None, told: Sequence[int] = ()) -> Hook:
    """Have no rank begin `step` before the test has acted: however late it is, the run has not ended.

    The test creates `acted` once it has acted; the ranks `told` also wait until they have noted their SIGTERM.
    """

    def hook(rank: int) -> None:
        loop: Any = importlib.import_module("trainer.loop")
        from trainyard.notice import Notice

        plain = loop.learning_rate

        def noted() -> bool:
            if not acted.exists():
                return False
            notices = (found for found in gc.get_objects() if isinstance(found, Notice))
            return rank not in told or any(found.source for found in notices)

        def held(*arguments: Any) -> Any:
            if arguments[2] == step:
                until(noted, "the test to act")
            return plain(*arguments)

        pytest.MonkeyPatch().setattr(loop, "learning_rate", held)
        if then:
            then(rank)

    return hook


def noting_samples(file: Path, attempt: int) -> Hook:
    """Have every rank append `attempt first count` for the samples that it takes."""

    def hook(_: int) -> None:
        from trainer.data.prefetch import PrefetchLoader

        plain = PrefetchLoader.take

        def noted(loader: PrefetchLoader, first: int, count: int) -> Any:
            with file.open("a") as stream:
                stream.write(f"{attempt} {first} {count}\n")
            return plain(loader, first, count)

        pytest.MonkeyPatch().setattr(PrefetchLoader, "take", noted)

    return hook
