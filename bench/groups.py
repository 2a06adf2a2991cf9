"""Groups of an elastic run of any program, as processes, and the steps that they print.

A program prints `step NUMBER loss LOSS groups COUNT` for each step that it takes.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.request import ROOT
from trainyard import contract
from trainyard.contract import GROUPS_ENV

DEADLINE_S: Final = 300.0
"""For anything that is waited for; generous, because the machine may be busy."""
SIGNALS: Final = {
    "announced": signal.SIGTERM,
    "killed": signal.SIGKILL,
    "silent": signal.SIGSTOP,
}
"""Ways in which a group goes away."""
_STEP: Final = re.compile(r"^step (\d+) loss (\S+) groups (\d+)$")


@dataclass(frozen=True)
class Printed:
    """A step that a group has taken."""

    number: int
    loss: str
    groups: int
    at: float
    """Monotonic seconds at which it was printed."""


class Group:
    """A group: one process, or the ranks of a launcher."""

    def __init__(
        self, name: str, command: Sequence[str], environment: dict[str, str], output: Path
    ) -> None:
        self.name, self.output = name, output
        self.steps: list[Printed] = []
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def last(self) -> int:
        """The last step that was printed; 0 before the first."""
        return self.steps[-1].number if self.steps else 0

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """End the launcher and the ranks."""
        if self.process.poll() is None:
            for rank in children(self.process.pid):  # they have sessions of their own
                os.kill(rank, signal.SIGKILL)
            os.killpg(self.process.pid, signal.SIGKILL)
        self.end()

    def end(self) -> int:
        """Wait for the end; return the exit code."""
        code = self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        return code

    def processor_seconds(self) -> float:
        """Return the time that the process has computed."""
        values = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")

    def _read(self) -> None:
        assert self.process.stdout
        with self.output.open("a") as log:
            for line in self.process.stdout:
                if found := _STEP.match(line):
                    number, loss, groups = found.groups()
                    self.steps.append(Printed(int(number), loss, int(groups), time.monotonic()))
                log.write(line)
                log.flush()


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@dataclass
class Programs:
    """A run of a program and its groups, in a folder."""

    folder: Path
    command: Sequence[str]
    """What Python is given: a script and its arguments."""
    groups: str = "{}"
    """How many groups the run has, as the platform writes it."""
    python: str = sys.executable
    started: list[Group] = field(default_factory=list)
    _alone: list[Group] = field(default_factory=list)
    _prepared: Group | None = None

    def start(self, ranks: int = 1, *, alone: bool = False) -> Group:
        """Start one more group; `alone`: in a run of its own, to compare with."""
        if self._prepared and not alone:
            group, self._prepared = self._prepared, None
            assert group.process.stdin
            group.process.stdin.close()
        else:
            words = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
            group = self._launch(words if ranks > 1 else [], alone=alone)
        (self._alone if alone else self.started).append(group)
        return group

    def prepare(self) -> None:
        """Let the next group of one rank import torch now: nobody is to wait for the cores that this takes."""
        self._prepared = self._launch(["-m", "bench.preloaded"], alone=False)
        self.until(lambda: "preloaded" in self._prepared_output(), "the imports", [self._prepared])

    def _prepared_output(self) -> str:
        assert self._prepared
        return self._prepared.output.read_text() if self._prepared.output.exists() else ""

    def _launch(self, launcher: Sequence[str], *, alone: bool) -> Group:
        name = "alone" if alone else f"group-{len(self.started)}"
        folder = self.folder / ("alone" if alone else "run")
        folder.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {
            contract.RUN_DIR_ENV: str(folder),
            contract.CHECKPOINTS_ENV: str(folder / "checkpoints"),
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            GROUPS_ENV: "{}" if alone else self.groups,
        }
        command = [self.python, *launcher, *self.command]
        return Group(name, command, environment, self.folder / f"{name}.log")

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
                [step.groups for step in group.steps[-3:] if step.number > begun[group.name]]
                == [len(alive)] * 3
                for group in alive
            )

        self.until(settled, f"{len(alive)} groups", alive)

    def lose(self, alive: list[Group], victim: Group, kind: str) -> None:
        """Take a group away, and wait until the others have taken some steps without it."""
        alive.remove(victim)
        victim.send(SIGNALS[kind])
        self.settle(alive)
        if kind == "silent":
            victim.send(signal.SIGKILL)
        code = victim.end()
        if kind == "announced" and code != contract.EXIT_PREEMPTED:
            raise AssertionError(f"{victim.name} ended with {code} after a notice")

    def until(self, condition: Callable[[], bool], what: str, alive: Sequence[Group] = ()) -> None:
        """Wait for a condition; fail if a group ends meanwhile."""
        limit = time.monotonic() + DEADLINE_S
        while not condition():
            for group in alive:
                if group.process.poll() is not None:
                    code, tail = group.end(), group.output.read_text(errors="replace")[-2000:]
                    raise AssertionError(f"{group.name} ended, {code}:\n{tail}")
            assert time.monotonic() < limit, f"{what}: not within {DEADLINE_S} s; {self.folder}"
            time.sleep(0.02)

    def stop(self) -> None:
        """Kill what is left."""
        for group in [*self.started, *self._alone, *filter(None, [self._prepared])]:
            group.kill()

    def compare(self, ranks: int = 1) -> tuple[list[tuple[int, str, str]], list[int]]:
        """Take one group of another run as far; return step and losses where they differ, and missing steps."""
        steps = [step for group in self.started for step in group.steps]
        last = max(step.number for step in steps)
        alone = self.start(ranks=ranks, alone=True)
        while (seen := alone.last) < last:  # as long as it takes steps
            self.until(lambda: alone.last > seen, f"step {seen + 1} of one group", [alone])
        alone.kill()
        expected = {step.number: step.loss for step in alone.steps if step.number <= last}
        differ = {
            (s.number, s.loss, expected[s.number]) for s in steps if s.loss != expected[s.number]
        }
        return sorted(differ), sorted(set(expected) - {step.number for step in steps})
