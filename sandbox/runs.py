"""Runs of this sandbox: followed as by the command line, and compared by the files that their trainers write."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from ops import collect, objects
from ops.cluster import Cluster
from ops.commands import printer
from ops.runs import wait_command
from ops.runs.listing import summary_of
from ops.snapshot import Snapshot
from sandbox import paths
from sandbox.node.api import Json
from trainyard import contract

POLL_S: Final = 1.0


@dataclass(frozen=True)
class Progress:
    """Metrics and events that the trainer has written, oldest first."""

    metrics: list[Json] = field(default_factory=list)
    events: list[Json] = field(default_factory=list)

    @property
    def step(self) -> int:
        return int(self.metrics[-1]["step"]) if self.metrics else 0


class Runs:
    """The runs of one cluster, each as its object, or as that of all its groups."""

    def __init__(self, state: paths.State) -> None:
        self.state = state
        self.cluster = Cluster(state.kubeconfig)

    def all(self) -> list[Json]:
        return collect.list_runs(self.cluster)

    def find(self, wanted: str) -> Json:
        """Return the run with this id, or the newest version of this name. Raises NoSuchRunError."""
        return collect.find_run(self.all(), wanted)

    def read(self, run: Json) -> Snapshot:
        """Return the run as it is now. Raises NoSuchRunError if it was deleted."""
        return collect.read_run(self.cluster, run)

    def follow(
        self, run: Json, console: Console, until: Callable[[Progress], bool] = lambda _: False
    ) -> Snapshot:
        """Print changes of a run until it has ended or `until` holds; return it as it is then."""

        def enough() -> bool:
            return until(self.progress(run))

        return wait_command.follow(self.cluster, run, printer(console), enough, POLL_S)

    def exit_code(self, ended: Snapshot) -> int:
        return wait_command.exit_code(self.cluster, ended)

    def folder(self, run: Json) -> Path:
        """Return the run's folder on this machine, in its team's checkpoint volume."""
        namespace = str(objects.meta(run)["namespace"])
        return self.state.volumes / namespace / "checkpoints" / objects.run_id_of(run)

    def progress(self, run: Json) -> Progress:
        """Read the trainer's metrics and events, as far as they are written."""
        folder = self.folder(run)
        return Progress(
            metrics=read_lines(folder / contract.METRICS_FILE),
            events=read_lines(folder / contract.EVENTS_FILE),
        )


def read_lines(path: Path) -> list[Json]:
    """Read the complete lines of a JSON Lines file; a partial last line is skipped."""
    try:
        text = path.read_text()
    except OSError:
        return []
    whole = text[: text.rfind("\n") + 1]
    return [json.loads(line) for line in whole.splitlines() if line]


def print_summary(runs: Runs, ended: Snapshot, console: Console) -> bool:
    folder, progress = runs.folder(ended.run), runs.progress(ended.run)
    metrics, events = progress.metrics, progress.events
    table = Table(title=f"Run {ended.run_id}", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    table.add_row("outcome", summary_of(ended).state)
    if metrics:
        table.add_row("steps", str(progress.step))
        table.add_row(
            "loss",
            f"{metrics[0]['loss']:.3f} at the first step, {metrics[-1]['loss']:.3f} at the last",
        )
    evaluated = [e for e in events if e.get("event") == "evaluated"]
    if evaluated:
        last = evaluated[-1]
        text = f"{last['loss']:.3f} on held-out files"
        if "unigram_loss" in last:
            text += f", a unigram model has {last['unigram_loss']:.3f}"
        table.add_row("evaluation", text)
    good, text = verify_newest(folder)
    table.add_row("checkpoint", text)
    table.add_row("metrics", str(folder / contract.METRICS_FILE))
    console.print(table)
    return good


def verify_newest(folder: Path) -> tuple[bool, str]:
    """Verify every hash of the newest checkpoint of a run; return (valid, path and result)."""
    checkpoints = sorted((folder / contract.CHECKPOINTS_DIR).glob("step-*"))
    if not checkpoints:
        return False, "none written"
    newest = checkpoints[-1]
    done = subprocess.run(
        [sys.executable, "-m", "trainer.checkpoint", "verify", str(newest)],
        cwd=paths.PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return True, f"{newest} (every hash verified)"
    last = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()[-1]
    return False, f"{newest} DOES NOT VERIFY: {last}"
