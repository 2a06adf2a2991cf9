"""docs/operate.md, "A second region": a run goes on, exactly, in another stack on another control plane."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.embedded import Embedded, running_cluster
from sandbox import paths
from tests.sandbox.node_kit import until
from tests.sandbox.pulumi_project import link_project

pytestmark = [pytest.mark.sandbox, pytest.mark.full_only, pytest.mark.timeout(3600)]

COMMAND_S = 900.0
STEPS = 150


class Region:
    """A stack of its own on a cluster of its own."""

    def __init__(self, cluster: Embedded, stack: str, folder: Path) -> None:
        self.state, self.stack, self.folder = paths.State(cluster.home), stack, folder / stack
        self.folder.mkdir()
        link_project(self.folder)
        self.file = self.folder / f"Pulumi.{stack}.yaml"
        self.env = os.environ | cluster.variables()
        self.pulumi("stack", "init", stack, "--no-select")

    def up(self, *runs: Path) -> None:
        """Deploy the local stack with these runs."""
        values = yaml.safe_load((paths.PROJECT / "Pulumi.local.yaml").read_text())
        values["config"]["trainyard:runs"] = [str(run) for run in runs]
        kept = yaml.safe_load(self.file.read_text()) if self.file.exists() else {}
        self.file.write_text(yaml.safe_dump({**(kept or {}), **values}))
        self.pulumi("up", "--yes", "--skip-preview", "--stack", self.stack)

    def pulumi(self, *words: str) -> str:
        return self._run("pulumi", "--non-interactive", *words)

    def ops(self, *words: str) -> str:
        return self._run(sys.executable, "-m", "ops", *words)

    def kubectl(self, *words: str) -> str:
        return self._run("kubectl", *words)

    def runs(self) -> Path:
        """Where runs of the team have their checkpoints."""
        return self.state.volumes / "team-research" / "checkpoints"

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
        return done.stdout


def lines(run: Path, name: str) -> list[Mapping[str, Any]]:
    """A run's metrics or events."""
    file = run / name
    text = file.read_text() if file.exists() else ""
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


def steps(run: Path) -> dict[int, float]:
    """Its losses by step."""
    return {one["step"]: one["loss"] for one in lines(run, "metrics.jsonl")}


def run_file(folder: Path) -> Path:
    document = yaml.safe_load((paths.PROJECT / "training/runs/drill.yaml").read_text())
    file = folder / "moved.yaml"
    changed = {"name": "moved", "overrides": {"steps": STEPS}}
    file.write_text(yaml.safe_dump(document | changed))
    return file


def test_a_run_goes_on_in_a_second_stack_after_its_folder_was_copied(tmp_path: Path) -> None:
    run = run_file(tmp_path)
    with running_cluster(print, tuned=False) as one:
        first = Region(one, "first", tmp_path)
        first.up(run)
        until(lambda: bool(list(first.runs().glob("moved-v1-*/metrics.jsonl"))), "it trains", 900)
        (mine,) = first.runs().glob("moved-v1-*")
        until(lambda: max(steps(mine), default=0) >= 15, "step 15", 900)
        first.ops("stack", "drain", "--timeout", "600")
        saved = max(steps(mine))
        kept = tmp_path / mine.name
        shutil.copytree(
            mine, kept
        )  # `aws s3 sync` of the page: all that is left of the first region.
    with running_cluster(print, tuned=False) as other:
        second = Region(other, "second", tmp_path)
        second.up()
        shutil.copytree(kept, second.runs() / mine.name)
        begun = time.monotonic()
        second.up(run)
        again = second.runs() / mine.name
        until(lambda: max(steps(again)) > saved, "the run goes on", 900)
        seconds = time.monotonic() - begun
        resumed = [one for one in lines(again, "events.jsonl") if one.get("event") == "resumed"]
        assert resumed[-1]["from_step"] == saved
        until(lambda: max(steps(again)) == STEPS, "the run ends", 1800)
        print(f"saved at step {saved}; past it {seconds:.0f} s after the second stack had the run")
