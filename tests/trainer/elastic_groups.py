"""Groups of an elastic run as forked processes, and what they did."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.ranks import DEADLINE_S, Hook, Ranks, RunFiles, until
from tests.trainer.runs import Trainer

ENDLESS = (
    "steps=1000000",
    "schedule.kind=constant",
    "evaluation.every_steps=40",
    "groups.max=4",
    "groups.silent_after_s=60",
)
"""Settings of a run that is stopped by its test. A group that only waits for a processor is not lost."""
SILENT = "groups.silent_after_s=1.5"
"""For tests of groups that fall silent."""


@dataclass
class ElasticRun:
    """One run and its groups, in the order in which they were started."""

    trainer: Trainer
    name: str
    settings: tuple[str, ...]
    groups: list[Ranks] = field(default_factory=list)

    @property
    def files(self) -> RunFiles:
        """What the run has written."""
        return self.trainer.files(self.name)

    @property
    def observed(self) -> Path:
        """`PID EVENT STEP VIEW FIRST STOP` of every group."""
        return self.trainer.root / f"{self.name}.observed"

    def add(self, hook: Hook | None = None) -> Ranks:
        """Start one more group."""

        def prepare(rank: int) -> None:
            observe_to(self.observed)
            if hook:
                hook(rank)

        started = self.trainer.start(self.name, *self.settings, world=1, hook=prepare)
        self.groups.append(started)
        return started

    def view(self) -> dict[str, Any]:
        """Return the newest view; without members before the first."""
        names = sorted((self.files.path / "groups").glob("view-*.json"))
        return json.loads(names[-1].read_text()) if names else {"members": []}

    def until_groups(self, count: int) -> None:
        """Wait until so many groups take steps together."""
        until(lambda: len(self.view()["members"]) == count, f"{count} groups: {self.output()}")

    def wait(self, deadline_s: float = DEADLINE_S) -> list[int]:
        """Wait for all groups; return their exit codes."""
        return [group.wait(deadline_s)[0] for group in self.groups]

    def output(self) -> str:
        """What all groups printed."""
        return "\n".join(f"{n}: {group.output()}" for n, group in enumerate(self.groups))


def start_run(
    trainer: Trainer,
    name: str,
    groups: int,
    *settings: str,
    minimum: int = 1,
    hook: Hook | None = None,
) -> ElasticRun:
    """Start a run with so many groups."""
    run = ElasticRun(trainer, name, ("groups.max=4", f"groups.min={minimum}", *settings))
    for _ in range(groups):
        run.add(hook)
    return run


def stop_run(run: ElasticRun) -> None:
    """Stop a run as an operator does, and check that every group agrees."""
    (run.files.path / "notice").touch()
    until(lambda: not run.view()["members"], f"the end: {run.output()}")
    for group in run.groups:
        assert group.wait()[0] in (75, -9), run.output()


def observe_to(file: Path) -> None:
    """Have the group of this process append what it sums and applies."""
    from training.trainer.elastic import start

    def observe(event: str, step: int, view: int, leaves: range) -> None:
        with file.open("a") as stream:
            stream.write(f"{os.getpid()} {event} {step} {view} {leaves.start} {leaves.stop}\n")

    plain = start.run_group
    pytest.MonkeyPatch().setattr(start, "run_group", partial(plain, observe=observe))


def final_weights(run_dir: Path) -> str:
    """Return the hash of the newest checkpoint's tensors."""
    folder = max((run_dir / "checkpoints").glob("step-*"))
    files = sorted(folder.glob("*.safetensors"))
    content = b"".join(f.read_bytes() for f in files if not f.name.startswith("rng"))
    return hashlib.sha256(content).hexdigest()
