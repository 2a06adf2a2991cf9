"""Open a running cluster with a Pulumi engine: shared by `up`, `drill` and the tests."""

from __future__ import annotations

import contextlib
import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from infra.config import ConfigError, add_ons, parse, stack_values
from sandbox import charts, cluster, environment, example_environment, paths, toolchain
from sandbox.engine import Engine
from sandbox.node import images, reclaim
from sandbox.runs import Runs
from sandbox.services import ClusterSettings
from training import source


@dataclass(frozen=True)
class Session:
    settings: ClusterSettings
    engine: Engine

    @property
    def state(self) -> paths.State:
        return self.settings.state

    @functools.cached_property
    def runs(self) -> Runs:
        return Runs(self.state)

    def deploy(self, config_file: Path | None = None) -> dict[str, Any]:
        """Run `pulumi up`; return the stack's outputs.

        The images are snapshotted first: sources edited while the engine runs cannot change them.
        """
        for image in source.LAYERS:
            images.snapshot(source.digest(paths.PROJECT, image), self.state, image=image)
        self.engine.up(config_file)
        return self.engine.outputs()


def open_cluster(console: Console) -> Session:
    """Ensure toolchain, cluster, commands and stack; each step is a no-op when already done."""

    def report(text: str) -> None:
        console.print(f"  {text}", highlight=False)

    console.print("[bold]Toolchain[/bold]")
    tools = toolchain.ensure_for_runs(console)
    origins: dict[str, list[str]] = {}
    for name, origin in tools.sources.items():
        origins.setdefault(origin, []).append(name)
    for origin, names in origins.items():
        report(f"from {origin}: {', '.join(sorted(names))}")
    values = _stack_values()
    with contextlib.suppress(ConfigError):
        charts.provide(add_ons.args(parse(values)).charts, console)
    console.print("[bold]Cluster[/bold]")
    settings = cluster.up(tools, report)
    environment.install(settings)
    report(f"ready; kubeconfig {settings.state.kubeconfig}")
    for node in reclaim.restore("all"):
        report(f"node {node} restored after its interruption")
    engine = Engine(settings.state, os.environ | environment.variables(settings))
    engine.ensure_stack(report)
    runs = values.get("runs")
    if example_environment.is_used(runs if isinstance(runs, list) else []):
        example_environment.ensure(report)
    return Session(settings, engine)


def _stack_values() -> dict[str, Any]:
    """Return the values of the local stack; none if its file is invalid, which the deployment reports."""
    try:
        return stack_values(paths.PROJECT / "Pulumi.local.yaml")
    except (ConfigError, OSError):
        return {}
