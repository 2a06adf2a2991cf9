"""Runs of two ranks that benchmarks start, watch, kill and restart: the trainer and a baseline."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from trainyard import run_logs

ROOT: Final = Path(__file__).parents[2]
WAIT_S: Final = 120.0
"""Timeout of every wait, in seconds."""
_POLL_S: Final = 0.005
_CONFIG: Final = """
steps: {steps}
model: {{hidden_size: {hidden}, intermediate_size: {wide}, layers: {layers}, heads: 4, kv_heads: 4}}
data: {{path: {data}, sequence_length: 64}}
batch: {{global_samples: 16, micro_samples: 8}}
schedule: {{kind: constant, warmup_steps: 1}}
evaluation: {{samples: 8}}
checkpoint: {{every_steps: {every}, keep_latest: 2}}
"""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Of the model that both train."""

    hidden: int
    layers: int

    def llama(self) -> str:
        """For the plain script."""
        return json.dumps(
            {
                "vocab_size": 260,
                "hidden_size": self.hidden,
                "intermediate_size": 3 * self.hidden,
                "num_hidden_layers": self.layers,
                "num_attention_heads": 4,
                "use_cache": False,
            }
        )


@dataclass(frozen=True, kw_only=True)
class StepMark:
    """The newest step that was done."""

    step: int
    at: float
    """Unix seconds."""
    incarnation: float
    """A greater number for each start of the ranks."""
    pid: int
    """Of rank 0."""


@dataclass
class LiveRun:
    """One run and its launcher; started again after each end."""

    folder: Path
    command: list[str]
    mark: Callable[[], StepMark | None]
    environment: dict[str, str] = field(default_factory=dict)
    launcher: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Launch it, in a session of its own so that all of it can be killed."""
        self.folder.mkdir(exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self.launcher = subprocess.Popen(
                self.command,
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1", **self.environment},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def next_mark(self, after: StepMark | None, step: int = 0) -> StepMark:
        """The first mark of a later incarnation than `after`, of this step at least."""
        limit = time.monotonic() + WAIT_S
        while time.monotonic() < limit:
            found = self.mark()
            if found and found.step >= step:
                if after is None or found.incarnation > after.incarnation:
                    return found
            elif self.launcher and self.launcher.poll() not in (None, 0):
                break
            time.sleep(_POLL_S)
        raise TimeoutError(f"no step within {WAIT_S:.0f} s; see {self.folder / 'log'}")

    def reach(self, step: int) -> StepMark:
        """Wait until this step is done."""
        return self.next_mark(None, step)

    def wait(self) -> int:
        """The launcher's exit code."""
        assert self.launcher
        return self.launcher.wait(WAIT_S)

    def signal(self, number: signal.Signals) -> None:
        """To the launcher and all that it started, as far as they run."""
        if self.launcher is None:
            return
        for pid in [self.launcher.pid, *_descendants(self.launcher.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """Kill the launcher and all that it started."""
        self.signal(signal.SIGKILL)
        if self.launcher is not None:
            self.launcher.wait()


def trainer_run(folder: Path, data: Path, shape: Shape, steps: int, every: int) -> LiveRun:
    """Our trainer under our launcher."""
    folder.mkdir()
    config, run = folder / "config.yaml", folder / "run"
    config.write_text(
        _CONFIG.format(
            steps=steps,
            hidden=shape.hidden,
            wide=3 * shape.hidden,
            layers=shape.layers,
            data=data,
            every=every,
        )
    )
    program = ["-m", "training.trainer", "--config", str(config), "--run-dir", str(run)]
    command = [sys.executable, "-m", "trainyard.launch", "--ranks=2", "--", *program]
    return LiveRun(folder, command, lambda: _trainer_mark(run))


def baseline_run(folder: Path, model: str, steps: int, every: int) -> LiveRun:
    """The plain script under torchrun."""
    folder.mkdir()
    script = Path(__file__).with_name("baseline.py")
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    program = [str(script), str(folder), str(steps), str(every), model]
    return LiveRun(folder, [sys.executable, *launch, *program], lambda: _baseline_mark(folder))


def prepare_dataset(folder: Path) -> Path:
    """Prepare a small dataset from the project's documentation."""
    out = folder / "data"
    command = [sys.executable, "-m", "training.prepare", "--source", str(ROOT / "docs")]
    subprocess.run(
        [*command, "--suffix", ".md", "--out", str(out)], cwd=ROOT, check=True, capture_output=True
    )
    return out


def step_and_stall_seconds(run: Path) -> tuple[list[float], list[float]]:
    """Return the seconds of each step of a trainer's run, and the stall of each save."""
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    stalls = [step["checkpoint_stall_s"] for step in steps if step["checkpoint_stall_s"]]
    return [b["time"] - a["time"] for a, b in pairwise(steps)], stalls or [0.0]


def _last_line(file: Path) -> str | None:
    try:
        with file.open("rb") as stream:
            stream.seek(max(0, file.stat().st_size - 4096))
            lines = stream.read().decode().split("\n")
    except FileNotFoundError:
        return None
    return lines[-2] if len(lines) > 1 else None  # what follows the last line break is not whole


def _trainer_mark(run: Path) -> StepMark | None:
    values = run_logs.last_line(run / "metrics.jsonl")
    if values is None:
        return None
    attempt = run / "attempts" / f"attempt-{values['attempt']:08d}.json"
    return StepMark(
        step=values["step"],
        at=values["time"],
        incarnation=values["attempt"],
        pid=json.loads(attempt.read_text())["pid"],
    )


def _baseline_mark(folder: Path) -> StepMark | None:
    line = _last_line(folder / "progress")
    if line is None:
        return None
    step, at, pid, begun = line.split()
    return StepMark(step=int(step), at=float(at), incarnation=float(begun), pid=int(pid))


def _descendants(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [one for child in children for one in (*_descendants(int(child)), int(child))]
