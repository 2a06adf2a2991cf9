"""Ranks of an example as real processes on this machine, without a launcher in between."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox import paths

DEADLINE_S = 600.0
"""For anything that a test waits for; generous, because the machine may be busy."""
WORLD = 2
EXAMPLES = paths.PROJECT / "examples"


@dataclass
class ExampleRun:
    """One run of an example: its folder, and one attempt after the other."""

    python: Path
    folder: Path
    script: Path
    arguments: Sequence[str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    attempts: int = 0

    def start(self) -> None:
        """Start all ranks of the next attempt."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        log = (self.folder / f"attempt-{self.attempts}.log").open("ab")
        for rank in range(WORLD):
            self.processes.append(
                subprocess.Popen(
                    [self.python, self.script, *self.arguments],
                    cwd=self.script.parent,
                    env=self._environment(rank, port),
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )
        self.attempts += 1

    def interrupt(self, step: int, number: signal.Signals) -> list[int]:
        """Send a signal to all ranks once `step` is reported; return their exit codes."""
        self.await_step(step)
        for process in self.processes:
            process.send_signal(number)
        return self.wait()

    def wait(self) -> list[int]:
        """Return the exit codes of all ranks; kill them and fail when that takes too long."""
        try:
            self._until(lambda: all(p.poll() is not None for p in self.processes), "all to end")
        finally:
            codes = self.end()
        return codes

    def end(self) -> list[int]:
        """Kill what still runs; return all exit codes."""
        for process in self.processes:
            process.kill()
        codes = [process.wait() for process in self.processes]
        self.processes = []
        return codes

    def await_step(self, step: int) -> None:
        """Return once this step is reported; fail when the ranks end or stall before."""
        self._until(lambda: max(self.losses(), default=0) >= step or self._ended(), f"step {step}")
        assert max(self.losses(), default=0) >= step, self.output()

    def await_output(self, text: str) -> None:
        """Return once the ranks have printed `text`; fail when they end or stall before."""
        self._until(lambda: text in self.output() or self._ended(), repr(text))
        assert text in self.output(), self.output()

    def checkpoints(self) -> list[int]:
        """Return the steps of the published checkpoints, ascending."""
        return sorted(int(p.name[5:]) for p in (self.folder / "checkpoints").glob("step-*"))

    def losses(self) -> dict[int, float]:
        """Return the reported losses by step; of a repeated step the last."""
        found: dict[int, float] = {}
        for line in self._metrics():
            found[int(line["step"])] = float(line["loss"])
        return found

    def output(self) -> str:
        """Return what the ranks of the last attempt printed."""
        return (self.folder / f"attempt-{self.attempts - 1}.log").read_text(errors="replace")[
            -6000:
        ]

    def _metrics(self) -> list[dict[str, Any]]:
        file = self.folder / "metrics.jsonl"
        lines = file.read_text().split("\n")[:-1] if file.exists() else []
        return [json.loads(line) for line in lines]

    def _ended(self) -> bool:
        return any(process.poll() is not None for process in self.processes)

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        limit = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < limit, f"waited {DEADLINE_S} s for {what}: {self.output()}"
            time.sleep(0.02)

    def _environment(self, rank: int, port: int) -> dict[str, str]:
        return os.environ | {
            "PYTHONPATH": str(paths.PROJECT),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(WORLD),
            "LOCAL_WORLD_SIZE": str(WORLD),
            "GROUP_WORLD_SIZE": "1",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "TRAINYARD_RUN_ID": f"{self.folder.name}-v1-00000000",
            "TRAINYARD_RUN_DIR": str(self.folder),
            "TRAINYARD_CHECKPOINTS": str(self.folder / "checkpoints"),
            "TRAINYARD_SCRATCH": str(self.folder / "scratch"),
            "TRAINYARD_ATTEMPT": str(self.attempts),
            "TRAINYARD_NOTICE_SECONDS": "240",
        }
