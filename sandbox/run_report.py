"""Summary of a finished run: its metrics and its verified checkpoint."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ops.runs.listing import summary_of
from ops.snapshot import Snapshot
from sandbox import paths
from sandbox.runs import Runs
from trainyard import contract


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
