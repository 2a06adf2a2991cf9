"""Groups of an elastic run as forked processes, and what they did."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.ranks import DEADLINE_S, Hook, Ranks, RunFiles, until
from tests.trainer.runs import Trainer
from trainyard.contract import GROUPS_ENV

ENDLESS = (
    "steps=1000000",
    "schedule.kind=constant",
    "evaluation.every_steps=40",
    "groups.workers=8",
    "groups.silent_after_s=60",
)
"""Settings of a run that is stopped by its test. A group that only waits for a processor is not lost."""
SETTINGS = {1: ENDLESS, 2: (*ENDLESS, "parallel.shard=2", "groups.workers=4")}
"""By ranks of a group; those of a group of two hold one model together."""
groups_of_one = pytest.mark.parametrize("elastic", [pytest.param(1, id="1 rank")], indirect=True)
groups_of_two = pytest.mark.parametrize("elastic", [pytest.param(2, id="2 ranks")], indirect=True)
groups_of_one_or_two = pytest.mark.parametrize(
    "elastic",
    [
        pytest.param(1, id="1 rank"),
        pytest.param(2, marks=pytest.mark.full_only, id="2 ranks"),
    ],
    indirect=True,
)
SILENT = "groups.silent_after_s=1.5"
"""For tests of groups that fall silent."""


@dataclass
class ElasticRun:
    """One run and its groups, in the order in which they were started."""

    trainer: Trainer
    name: str
    settings: tuple[str, ...]
    ranks: int = 1
    """Ranks of a group."""
    numbers: dict[str, int] = field(default_factory=lambda: {"max": 4})
    """What TRAINYARD_GROUPS says."""
    groups: list[Ranks] = field(default_factory=list)

    @property
    def files(self) -> RunFiles:
        """What the run has written."""
        return self.trainer.files(self.name)

    def add(self, hook: Hook | None = None) -> Ranks:
        """Start one more group."""

        def numbered(rank: int) -> None:
            os.environ[GROUPS_ENV] = json.dumps(self.numbers)
            if hook:
                hook(rank)

        started = self.trainer.start(self.name, *self.settings, world=self.ranks, hook=numbered)
        self.groups.append(started)
        return started

    def view(self) -> dict[str, Any]:
        """Return the newest view; without members before the first."""
        names = sorted((self.files.path / "groups").glob("view-*.json"))
        return json.loads(names[-1].read_text()) if names else {"members": []}

    def read_view(self, number: int) -> dict[str, Any]:
        """Return one view."""
        file = self.files.path / "groups" / f"view-{number:08d}.json"
        found: dict[str, Any] = json.loads(file.read_text())
        return found

    def until_groups(self, count: int) -> None:
        """Wait until so many groups take steps together."""
        until(lambda: len(self.view()["members"]) == count, f"{count} groups: {self.output()}")

    def wait(self, deadline_s: float = DEADLINE_S) -> list[int]:
        """Wait for all groups; return the exit codes of all ranks."""
        return [code for group in self.groups for code in group.wait(deadline_s)]

    def output(self) -> str:
        """What all groups printed."""
        return "\n".join(f"{n}: {group.output()}" for n, group in enumerate(self.groups))


def start_run(
    trainer: Trainer,
    name: str,
    groups: int,
    *settings: str,
    minimum: int = 1,
    ranks: int = 1,
    hook: Hook | None = None,
) -> ElasticRun:
    """Start a run with so many groups."""
    run = ElasticRun(trainer, name, ("groups.workers=8", *settings), ranks)
    run.numbers["min"] = minimum
    for _ in range(groups):
        run.add(hook)
    return run


def stop_run(run: ElasticRun) -> None:
    """Stop a run as an operator does, and check that every group agrees."""
    (run.files.path / "notice").touch()
    until(lambda: not run.view()["members"], f"the end: {run.output()}")
    for group in run.groups:
        codes = group.wait()
        assert codes == [75] * len(codes) or -signal.SIGKILL in codes, run.output()


def final_weights(run_dir: Path) -> str:
    """Return the hash of the newest checkpoint's tensors."""
    folder = max((run_dir / "checkpoints").glob("step-*"))
    files = sorted(folder.glob("*.safetensors"))
    content = b"".join(f.read_bytes() for f in files if not f.name.startswith("rng"))
    return hashlib.sha256(content).hexdigest()


def grown(run: ElasticRun, groups: int, hook: Hook | None = None) -> None:
    """Start so many groups, one after the other, so that their order is known."""
    for number in range(1, groups + 1):
        run.add(hook)
        run.until_groups(number)
    advance(run)


def advance(run: ElasticRun, steps: int = 3) -> None:
    """Wait for further steps."""
    run.files.until_step(run.files.last_step() + steps)
