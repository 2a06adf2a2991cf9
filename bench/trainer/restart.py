"""P2: time of a relaunch on two ranks, of programs by `trainyard.launch` and of a plain script by torchrun.

From the start of a new launcher to the first step that it does; all resume a checkpoint. The program is
examples/ddp/train.py, the plain script examples/ddp/plain.py, which saves with torch.save.
"""

from __future__ import annotations

import functools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.request import ROOT, Request, Result
from bench.statistics import interleaved, median_and_bound, ratios
from trainyard import contract

SIZES: dict[str, dict[str, Any]] = {"small": {"pairs": 2}, "full": {"pairs": 10}}
GOAL: Final = 0.75
"""Maximum ratio to torchrun (P2)."""
TITLES: Final = {
    "program": "examples/ddp/train.py by `trainyard.launch`",
    "trainer": "the trainer by `trainyard.launch`",
    "torchrun": "examples/ddp/plain.py by torchrun",
}
WAIT_S: Final = 120.0
_POLL_S: Final = 0.005
_LAUNCH: Final = ("-m", "trainyard.launch", "--ranks=2", "--")
_TORCHRUN: Final = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
_EXAMPLE: Final = ROOT / "examples" / "ddp"
_STEPS: Final = ("--steps=1000000", "--save-every=20")
_CONFIG: Final = """
steps: 1000000
model: {{hidden_size: 64, intermediate_size: 192, layers: 4, heads: 4, kv_heads: 4}}
data: {{path: {data}, sequence_length: 64}}
batch: {{global_samples: 16, micro_samples: 8}}
schedule: {{kind: constant, warmup_steps: 1}}
evaluation: {{samples: 8}}
checkpoint: {{every_steps: 20, keep_latest: 2}}
"""


@dataclass
class Relaunched:
    """A run that is started again and again, and the file in which a line follows each step."""

    folder: Path
    command: list[str]
    lines: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Launch it, in a session of its own so that all of it can be killed."""
        own = {
            contract.RUN_DIR_ENV: str(self.folder),
            contract.CHECKPOINTS_ENV: str(self.folder / "saves"),
        }
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *self.command],
                cwd=ROOT,
                env={**os.environ, **own, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def steps(self) -> int:
        """Return how many steps all starts have done."""
        text = self.lines.read_bytes() if self.lines.exists() else b""
        return sum(b'"step"' in line or line.startswith(b"step ") for line in text.splitlines())

    def reach(self, steps: int) -> float:
        """Wait until so many steps are done; return the time. Raises TimeoutError."""
        limit = time.monotonic() + WAIT_S
        while self.steps() < steps:
            assert self.process
            if time.monotonic() > limit or self.process.poll() is not None:
                tail = (self.folder / "log").read_text(errors="replace")[-2000:]
                raise TimeoutError(f"{self.folder.name}: no step; {tail}")
            time.sleep(_POLL_S)
        return time.monotonic()

    def kill(self) -> None:
        """Kill the launcher and all that it started."""
        if self.process:
            for pid in [*_descendants(self.process.pid), self.process.pid]:
                _kill(pid)
            self.process.wait()

    def relaunch(self, chance: random.Random) -> float:
        """Return the seconds until a new launcher has done a step."""
        before, begun = self.steps(), time.monotonic()
        self.start()
        seconds = self.reach(before + 1) - begun
        self.reach(before + chance.randrange(25, 40))  # a later checkpoint is there
        self.kill()
        return seconds


def run(request: Request) -> Result:
    """Measure relaunches by turns."""
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        runs = _prepare(Path(folder))
        chance = random.Random(request.seed)
        try:
            for one in runs.values():
                one.start()
                one.reach(25)  # the first checkpoint is there
                one.kill()
            arms = {name: functools.partial(one.relaunch, chance) for name, one in runs.items()}
            times = interleaved(arms, request.sizes["pairs"], request.notify)
        finally:
            for one in runs.values():
                one.kill()
    return Result(text=section(times), versions="libraries")


def _prepare(root: Path) -> dict[str, Relaunched]:
    config, data = root / "config.yaml", root / "data"
    prepare = ["-m", "trainer.prepare", "--source", str(ROOT / "docs"), "--suffix", ".md"]
    subprocess.run(
        [sys.executable, *prepare, "--out", str(data)], cwd=ROOT, check=True, capture_output=True
    )
    config.write_text(_CONFIG.format(data=data))
    program = [str(_EXAMPLE / "train.py"), *_STEPS]
    plain = [str(_EXAMPLE / "plain.py"), *_STEPS, "--output", str(root / "torchrun")]
    trainer = [
        "-m",
        "trainer",
        "--config",
        str(config),
        "--run-dir",
        str(root / "trainer"),
    ]
    commands = {
        "program": [*_LAUNCH, *program],
        "trainer": [*_LAUNCH, *trainer],
        "torchrun": [*_TORCHRUN, *plain],
    }
    found = {}
    for name, command in commands.items():
        (root / name).mkdir()
        lines = "log" if name == "torchrun" else contract.METRICS_FILE
        found[name] = Relaunched(root / name, command, root / name / lines)
    return found


def section(times: dict[str, list[float]]) -> str:
    """Return the section of RESULTS.md."""
    lines = [
        "P2: seconds from the start of a new launcher to the first resumed step of two ranks on CPUs;"
        f" {len(times['torchrun'])} rounds that alternate. The program and the trainer verify their checkpoint.",
        "",
        "| | s | ratio to torchrun (bound) | |",
        "|---|---|---|---|",
    ]
    for name, title in TITLES.items():
        ratio = ratios(times[name], times["torchrun"])
        cells = ("", "") if name == "torchrun" else (str(ratio), ratio.goal(GOAL))
        lines.append(
            f"| {title} | {median_and_bound(times[name]).middle:.2f} | {' | '.join(cells)} |"
        )
    return "\n".join(lines)


def _descendants(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [one for child in children for one in (*_descendants(int(child)), int(child))]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
