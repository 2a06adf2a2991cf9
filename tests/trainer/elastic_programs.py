"""Groups of an elastic run of any program, as processes, and what they printed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox import paths
from trainyard.elastic import GROUPS_ENV

PLAIN = paths.PROJECT / "examples" / "elastic" / "train.py"
DEADLINE_S = 300.0
"""For anything that a test waits for; generous, because the machine may be busy."""
ENDLESS = "1000000"
_STEP = re.compile(r"^step (\d+) loss (\S+) groups (\d+)$", re.MULTILINE)


@dataclass
class Group:
    """A group: one process, or the ranks of a launcher."""

    name: str
    process: subprocess.Popen[bytes]
    output: Path

    @property
    def steps(self) -> list[tuple[int, str, int]]:
        """Number, loss and groups of each step that was printed."""
        found = _STEP.findall(self.output.read_text(errors="replace"))
        return [(int(step), loss, int(groups)) for step, loss, groups in found]

    @property
    def last(self) -> int:
        """The last step that was printed; 0 before the first."""
        steps = self.steps
        return steps[-1][0] if steps else 0

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """End the launcher and the ranks."""
        if self.process.poll() is None:
            for rank in children(self.process.pid):  # they have sessions of their own
                os.kill(rank, signal.SIGKILL)
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def end(self) -> int:
        """Wait for the end; return the exit code."""
        return self.process.wait(DEADLINE_S)


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@dataclass
class Programs:
    """A run of a program and its groups, in a folder."""

    folder: Path
    command: Sequence[str]
    """What Python is given."""
    groups: str = "{}"
    """How many groups the run has, as the platform writes it."""
    python: str = sys.executable
    started: list[Group] = field(default_factory=list)

    def start(self, ranks: int = 1, *, alone: bool = False) -> Group:
        """Start one more group; `alone`: in a run of its own, to compare with."""
        name = "alone" if alone else f"group-{len(self.started)}"
        folder = self.folder / ("alone" if alone else "run")
        folder.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {
            "TRAINYARD_RUN_DIR": str(folder),
            "TRAINYARD_CHECKPOINTS": str(folder / "checkpoints"),
            "PYTHONPATH": str(paths.PROJECT),
            "OMP_NUM_THREADS": "1",
            GROUPS_ENV: "{}" if alone else self.groups,
        }
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        output = self.folder / f"{name}.log"
        with output.open("wb") as log:
            process = subprocess.Popen(
                [self.python, *(launcher if ranks > 1 else []), *self.command],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        group = Group(name, process, output)
        if not alone:
            self.started.append(group)
        return group

    def join(self, among: Sequence[Group], ranks: int = 1) -> Group:
        """Start a group, and wait until it has taken steps with these others."""
        group = self.start(ranks=ranks)
        self.settle([*among, group])
        return group

    def settle(self, alive: Sequence[Group]) -> None:
        """Wait until these groups, and no others, have taken some steps together."""
        begun = {group.name: group.last for group in alive}

        def settled() -> bool:
            return all(
                [groups for step, _, groups in group.steps if step > begun[group.name]][-3:]
                == [len(alive)] * 3
                for group in alive
            )

        self.until(settled, f"{len(alive)} groups", alive)

    def until(self, condition: Callable[[], bool], what: str, alive: Sequence[Group] = ()) -> None:
        """Wait for a condition; fail if a group ends meanwhile."""
        limit = time.monotonic() + DEADLINE_S
        while not condition():
            ended = [g for g in alive if g.process.poll() is not None]
            for group in ended:
                tail = group.output.read_text(errors="replace")[-2000:]
                raise AssertionError(f"{group.name} ended, {group.process.returncode}:\n{tail}")
            assert time.monotonic() < limit, f"{what}: not within {DEADLINE_S} s; {self.folder}"
            time.sleep(0.02)

    def stop(self) -> None:
        """Kill what is left."""
        for group in self.started:
            group.kill()

    def compare(self, ranks: int = 1) -> int:
        """Compare every loss with those of a run of one group; return the number of steps."""
        steps = [one for group in self.started for one in group.steps]
        last = max(step for step, _, _ in steps)
        alone = self.start(ranks=ranks, alone=True)
        self.until(lambda: alone.last >= last, f"step {last} of one group", [alone])
        alone.kill()
        wanted = {step: loss for step, loss, _ in alone.steps if step <= last}
        differ = {(step, loss) for step, loss, _ in steps if wanted[step] != loss}
        assert not differ, f"losses that differ from those of one group: {sorted(differ)}"
        missing = set(wanted) - {step for step, _, _ in steps}
        assert not missing, f"steps that no group has taken: {sorted(missing)}"
        return last
