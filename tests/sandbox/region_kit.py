"""A stack of its own on a cluster of its own, for tests that lose or leave one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from bench.embedded import Embedded
from infra.config import stack_values
from sandbox import paths
from tests.sandbox.pulumi_project import link_project

COMMAND_S = 900.0
STEPS = 150


def output_of(words: Sequence[str], folder: Path, env: Mapping[str, str]) -> str:
    done = subprocess.run(
        words,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    return done.stdout


class Region:
    """A stack of its own on a cluster of its own."""

    def __init__(self, cluster: Embedded, stack: str, folder: Path) -> None:
        self.state, self.stack, self.folder = paths.State(cluster.home), stack, folder / stack
        self.folder.mkdir()
        link_project(self.folder)
        self.file = self.folder / f"Pulumi.{stack}.yaml"
        self.env = os.environ | cluster.variables()
        self.pulumi("stack", "init", stack, "--no-select")

    def up(self, *runs: Path) -> str:
        """Deploy the local stack with these runs; return what the engine printed."""
        local = stack_values(paths.PROJECT / "Pulumi.local.yaml")
        local["runs"] = [str(run) for run in runs]
        values = {"config": {f"trainyard:{key}": value for key, value in local.items()}}
        kept = yaml.safe_load(self.file.read_text()) if self.file.exists() else {}
        self.file.write_text(yaml.safe_dump({**(kept or {}), **values}))
        return self.pulumi("up", "--yes", "--skip-preview", "--stack", self.stack)

    def pulumi(self, *words: str) -> str:
        return self._run("pulumi", "--non-interactive", *words)

    def ops(self, *words: str) -> str:
        return self._run(sys.executable, "-m", "ops", *words)

    def kubectl(self, *words: str) -> str:
        return self._run("kubectl", *words)

    def runs(self) -> Path:
        return self.state.volumes / "team-research" / "checkpoints"

    def _run(self, *words: str) -> str:
        return output_of(words, self.folder, self.env)


def lines(run: Path, name: str) -> list[Mapping[str, Any]]:
    file = run / name
    text = file.read_text() if file.exists() else ""
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


def steps(run: Path) -> dict[int, float]:
    return {one["step"]: one["loss"] for one in lines(run, "metrics.jsonl")}


def run_file(folder: Path) -> Path:
    document = yaml.safe_load((paths.PROJECT / "training/runs/drill.yaml").read_text())
    file = folder / "moved.yaml"
    changed = {"name": "moved", "overrides": {"steps": STEPS}}
    file.write_text(yaml.safe_dump(document | changed))
    return file
