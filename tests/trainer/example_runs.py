"""Runs of examples as a node of two GPUs starts them: `trainyard.launch` with the program of their run file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sandbox import paths
from sandbox.ports import free_port

DEADLINE_S = 600.0
"""For anything that a test waits for; generous, because the machine may be busy."""
WORLD = 2
EXAMPLES = paths.PROJECT / "examples"


@dataclass
class ExampleRun:
    """One run of an example: its folder, and one attempt after the other."""

    python: Path
    folder: Path
    run_file: Path
    arguments: Sequence[str]
    """What follows the command of the run file."""
    node: subprocess.Popen[bytes] | None = None
    """The launcher of the last attempt."""
    attempts: int = 0

    def start(self) -> None:
        """Start the next attempt."""
        self.folder.mkdir(parents=True, exist_ok=True)
        program = yaml.safe_load(self.run_file.read_text())["program"]
        file = self.folder / "program.json"
        file.write_text(json.dumps(self._program(program)))
        with (self.folder / f"attempt-{self.attempts}.log").open("ab") as log:
            self.node = subprocess.Popen(
                [self.python, "-m", "trainyard.launch", "--program", file],
                env=self._environment(program),
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.attempts += 1

    def interrupt(self, step: int) -> int:
        """Give the node a notice once `step` is reported; return its exit code."""
        self.await_step(step)
        return self.give_notice()

    def give_notice(self) -> int:
        """Send SIGTERM as for a pod that is deleted; return the exit code."""
        assert self.node is not None
        self.node.send_signal(signal.SIGTERM)
        return self.wait()

    def lose(self, step: int) -> None:
        """Kill all processes of the run once `step` is reported, as when its node is gone."""
        self.await_step(step)
        self.end()

    def wait(self) -> int:
        """Return the exit code of the node; kill it and fail when that takes too long."""
        assert self.node is not None
        node = self.node
        try:
            self._until(lambda: node.poll() is not None, "its end")
        finally:
            self.end()
        return node.returncode

    def end(self) -> None:
        """Kill what still runs."""
        self._until(self._killed, "the end of killed processes")
        if self.node is not None:
            self.node.wait()

    def await_step(self, step: int) -> None:
        """Return once this step is reported; fail when the run ends or stalls before."""
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
        return {int(line["step"]): float(line["loss"]) for line in self._metrics()}

    def output(self) -> str:
        """Return the end of what the last attempt printed."""
        log = self.folder / f"attempt-{self.attempts - 1}.log"
        return log.read_text(errors="replace")[-6000:]

    def _metrics(self) -> list[dict[str, Any]]:
        file = self.folder / "metrics.jsonl"
        lines = file.read_text().split("\n")[:-1] if file.exists() else []
        return [json.loads(line) for line in lines]

    def _ended(self) -> bool:
        return self.node is not None and self.node.poll() is not None

    def _killed(self) -> bool:
        """Kill all processes with this run's folder in their environment; return whether none was left."""
        mark = f"TRAINYARD_RUN_DIR={self.folder}".encode()
        found = []
        for process in Path("/proc").iterdir():
            try:
                variables = (process / "environ").read_bytes().split(b"\0")
            except OSError:
                continue  # no process, ended meanwhile, or another user's
            if mark in variables:
                found.append(int(process.name))
        # Children first: a parent that is gone is a notice to its rank.
        for pid in sorted(found, reverse=True):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return not found

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        limit = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < limit, f"waited {DEADLINE_S} s for {what}: {self.output()}"
            time.sleep(0.02)

    def _program(self, section: dict[str, Any]) -> dict[str, Any]:
        """Return program.json."""
        program: dict[str, Any] = {
            "launcher": section["launcher"],
            "command": [*section["command"], *self.arguments],
            "env": section.get("env", {}),
        }
        if "accelerate" in section:
            program["accelerate"] = str(paths.PROJECT / section["accelerate"])
        return program

    def _environment(self, section: dict[str, Any]) -> dict[str, str]:
        facts = {
            "PYTHONPATH": str(paths.PROJECT),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            # In a container mpirun runs as a user; here it may be root.
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "TRAINYARD_RUN_ID": f"{self.folder.name}-v1-00000000",
            "TRAINYARD_RUN_DIR": str(self.folder),
            "TRAINYARD_CHECKPOINTS": str(self.folder / "checkpoints"),
            "TRAINYARD_SCRATCH": str(self.folder / "scratch"),
            "TRAINYARD_SOURCE": str(paths.PROJECT / section["source"]),
            "TRAINYARD_GPUS_PER_NODE": str(WORLD),
            "TRAINYARD_RENDEZVOUS_PORT": str(free_port()),
            "TRAINYARD_ATTEMPT": str(self.attempts),
            "TRAINYARD_NOTICE_SECONDS": "240",
        }
        if "deepspeed" in section:
            facts["TRAINYARD_DEEPSPEED_CONFIG"] = str(paths.PROJECT / section["deepspeed"])
        return os.environ | facts
