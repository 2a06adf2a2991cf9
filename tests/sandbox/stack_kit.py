"""A stack of KWOK pools in a copy of the project, for tests that change it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from sandbox.paths import PROJECT
from tests import committed
from tests.sandbox import region_kit
from tests.sandbox.conftest import Cluster
from tests.sandbox.pulumi_project import link_project

Json = dict[str, Any]
STACK = "changed"
IMAGE = "registry.test/trainer@sha256:" + "1" * 64


class Stack:
    """A stack of KWOK pools whose runs wait or are simulated, in a copy of the project that links its files."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.folder, self.cluster = folder, cluster
        link_project(folder)
        self.pulumi("stack", "init", STACK, "--no-select")

    def write(self, values: Json, runs: list[Json]) -> None:
        file = self.folder / f"Pulumi.{STACK}.yaml"
        kept = (yaml.safe_load(file.read_text()) or {}) if file.exists() else {}
        listed = {**values, "runs": ["runs.yaml"]} if runs else values
        config = {f"trainyard:{key}": value for key, value in listed.items()}
        file.write_text(yaml.safe_dump({**kept, "config": config}))
        (self.folder / "runs.yaml").write_text(yaml.safe_dump_all(runs))

    def up(self) -> None:
        self.pulumi("up", "--yes", "--skip-preview", "--stack", STACK)

    def review(self) -> Json:
        return self._ops("review", "--preview", self._saved("preview", "--show-sames"), "--live")

    def drift(self) -> list[Json]:
        events = self.folder / "events.json"
        events.unlink(missing_ok=True)
        self.pulumi("refresh", "--preview-only", "--event-log", str(events), "--stack", STACK)
        return list(self._ops("drift", "--events", str(events))["differences"])

    def _saved(self, command: str, *words: str) -> str:
        """The path of what pulumi writes as JSON."""
        file = self.folder / f"{command}.json"
        file.write_text(self.pulumi(command, "--json", *words, "--stack", STACK))
        return str(file)

    def _ops(self, *words: str) -> Json:
        done = subprocess.run(
            [sys.executable, "-m", "ops", "stack", *words, "--stack", STACK, "--json"],
            cwd=PROJECT,
            env=self.cluster.env,
            capture_output=True,
            text=True,
            timeout=region_kit.COMMAND_S,
            check=False,
        )
        assert done.returncode in (0, 1), done.stderr
        found: Json = json.loads(done.stdout)
        return found

    def pulumi(self, *words: str) -> str:
        command = ["pulumi", "--non-interactive", *words]
        env = {**self.cluster.env, "PULUMI_DEBUG_COMMANDS": "true"}  # Has --event-log.
        return region_kit.output_of(command, self.folder, env)


@contextlib.contextmanager
def opened(folder: Path, cluster: Cluster) -> Iterator[Stack]:
    made = Stack(folder, cluster)
    yield made
    made.pulumi("destroy", "--yes", "--skip-preview", "--stack", STACK)
    made.pulumi("stack", "rm", "--yes", STACK)


def base() -> Json:
    """The local stack with its two KWOK pools and one team."""
    values = committed.local_on_queueing_cluster()
    values["nodePools"] = [p for p in values["nodePools"] if p["nodes"] == "kwok"]
    values["teams"] = [team("research", {"fleet-spot": 2})]
    values["images"] = {"trainer": IMAGE}
    values.pop("validation", None)
    values.pop("runs", None)
    return values


def team(name: str, guaranteed: Mapping[str, int], gpus: int = 32) -> Json:
    quota = {"cpu": "512", "memory": "4Ti", "gpus": gpus}
    return {"name": name, "tier": "research", "guaranteed": dict(guaranteed), "quota": quota}


def run(name: str, version: int = 1, seed: int = 1) -> Json:
    return {
        "name": name,
        "version": version,
        "team": "research",
        "jobKind": "jobset",
        "nodes": 1,
        "gpusPerNode": 8,
        "image": "trainer",
        "config": "hello",
        "dataset": {"name": "stdlib"},
        "resources": {"cpu": "2", "memory": "8Gi", "shm": "1Gi"},
        "maxHours": 1,
        "overrides": {"batch": {"micro_samples": 4}, "seed": seed},
    }
