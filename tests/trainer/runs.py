"""One small run after the other: what tests start, and what they compare."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.trainer.ranks import Hook, Ranks, RunFiles, held_before, start

STEPS = 24
INTERVAL = 5
CONFIG = f"""
steps: {STEPS}
seed: 11
collective_timeout_s: 60
model: {{hidden_size: 16, intermediate_size: 32, layers: 2, heads: 2, kv_heads: 1}}
data: {{sequence_length: 16}}
batch: {{global_samples: 8, micro_samples: 2}}
optimizer: {{learning_rate: 0.01}}
schedule: {{warmup_steps: 3}}
evaluation: {{every_steps: 8, samples: 13}}
checkpoint: {{every_steps: {INTERVAL}, keep_latest: 3}}
"""


@dataclass
class Trainer:
    """Starts attempts of a run, and ends them when the test does."""

    root: Path
    dataset: Path
    config: Path
    started: list[Ranks] = field(default_factory=list)

    def start(
        self,
        run: str,
        *assignments: str,
        world: int = 2,
        hook: Hook | None = None,
        after: str = "",
    ) -> Ranks:
        """Start one attempt of the run of this name. `after`: the run that it continues."""
        settings = [f"data.path={self.dataset}", *assignments]
        arguments = ["--config", str(self.config), "--run-dir", str(self.root / run)]
        arguments += ["--continue-from", str(self.root / after)] if after else []
        arguments += [word for setting in settings for word in ("--set", setting)]
        log = self.root / f"{run}.{len(self.started)}.log"
        ranks = start(arguments, world, log, hook)
        self.started.append(ranks)
        return ranks

    def run(
        self,
        run: str,
        *assignments: str,
        world: int = 2,
        hook: Hook | None = None,
        after: str = "",
    ) -> list[int]:
        """Start one attempt and wait for its exit codes."""
        return self.start(run, *assignments, world=world, hook=hook, after=after).wait()

    def stop(
        self,
        run: str,
        step: int,
        *assignments: str,
        world: int = 2,
        to: Sequence[int] | None = None,
        hook: Hook | None = None,
    ) -> Ranks:
        """Start one attempt and send SIGTERM to ranks, by default to all, soon after a step; wait for its end."""
        told = range(world) if to is None else to
        acted = self.root / f"{run}.{len(self.started)}.acted"
        held = held_before(min(step + 3, STEPS), acted, hook, told)
        ranks = self.start(run, *assignments, world=world, hook=held)
        self.files(run).until_step(step)
        ranks.signal(signal.SIGTERM, *told)
        acted.touch()
        ranks.wait()
        return ranks

    def files(self, run: str) -> RunFiles:
        """What the run of this name has written."""
        return RunFiles(self.root / run)

    def end(self) -> None:
        """End whatever still runs."""
        for ranks in self.started:
            ranks.end()


def assert_same(run: RunFiles, control: RunFiles) -> None:
    """Both runs are done, and agree in every bit of every loss."""
    assert run.losses() == control.losses()
    assert run.evaluations() == control.evaluations()
