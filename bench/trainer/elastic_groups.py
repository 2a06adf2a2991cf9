"""Groups of an elastic run as processes, started from a fork server that has everything loaded."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

WAIT_S: Final = 240.0
_POLL_S: Final = 0.004
_PRELOADED: Final = (
    "training.trainer.assembly",
    "training.trainer.groups",
    "training.trainer.preflight",
)


@dataclass
class GroupRun:
    """One run directory and the processes that were started for it."""

    folder: Path
    """Holds the run directory, the configuration and the log."""
    settings: list[str]
    processes: list[BaseProcess] = field(default_factory=list)

    @property
    def run_dir(self) -> Path:
        """The run directory."""
        return self.folder / "run"

    def start(self, environment: dict[str, str] | None = None) -> BaseProcess:
        """Start one more process."""
        self.folder.mkdir(exist_ok=True)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(_PRELOADED))
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        arguments = ["--config", str(self.folder / "config.yaml"), "--run-dir", str(self.run_dir)]
        arguments += [word for setting in self.settings for word in ("--set", setting)]
        process = context.Process(
            target=_run_trainer,
            args=(arguments, self.folder / "log", environment or {}),
            daemon=True,
        )
        process.start()
        self.processes.append(process)
        return process

    def view(self) -> dict[str, Any]:
        """Return the newest view; without members before the first."""
        names = sorted((self.run_dir / "groups").glob("view-*.json"))
        found: dict[str, Any] = {"number": 0, "members": []}
        return json.loads(names[-1].read_text()) if names else found

    def steps(self) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl."""
        return _lines(self.run_dir / "metrics.jsonl")

    def events(self) -> list[dict[str, Any]]:
        """Return the lines of events.jsonl."""
        return _lines(self.run_dir / "events.jsonl")

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait until a condition holds. Raises TimeoutError with the log's end."""
        limit = time.monotonic() + WAIT_S
        while not (value := condition()):
            if time.monotonic() > limit:
                log = (self.folder / "log").read_text()[-2000:]
                raise TimeoutError(f"waited {WAIT_S:.0f} s for {what}; the log ends with: {log}")
            time.sleep(_POLL_S)
        return value

    def last_step(self) -> int:
        """Return the newest step in metrics.jsonl; 0 for none."""
        try:
            with (self.run_dir / "metrics.jsonl").open("rb") as stream:
                stream.seek(max(0, stream.seek(0, os.SEEK_END) - 2048))
                lines = stream.read().decode().split("\n")
        except FileNotFoundError:
            return 0
        return int(json.loads(lines[-2])["step"]) if len(lines) > 1 and lines[-2] else 0

    def reach(self, step: int) -> None:
        """Wait until a step is done."""
        self.until(lambda: self.last_step() >= step, f"step {step}")

    def stop(self) -> int:
        """Stop the run as an operator does; return its last step."""
        (self.run_dir / "notice").touch()
        self.until(lambda: not self.view()["members"], "the run to stop")
        return self.last_step()

    def processor_seconds(self) -> float:
        """Return the processor time that all processes have used so far."""
        ticks = 0
        for process in self.processes:
            stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(stat[11]) + int(stat[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """End all processes."""
        for process in self.processes:
            if process.is_alive() and process.pid:
                os.kill(process.pid, signal.SIGKILL)
            process.join()


def free_port() -> int:
    """Return a port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _lines(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().split("\n")[:-1]]


def _run_trainer(arguments: list[str], log: Path, environment: dict[str, str]) -> None:
    """Be one process of the trainer; its standard streams go to the log."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.environ.update(environment)
    sys.argv = ["training.trainer", *arguments]
    from training.trainer.__main__ import main

    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
