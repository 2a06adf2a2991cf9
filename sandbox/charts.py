"""Install add-ons with the local stack's values, for clusters whose stacks expect them: tests and benches."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

import yaml
from rich.console import Console

from infra.addons.component import namespace
from infra.addons.model import Installable
from infra.addons.registry import ADD_ONS
from infra.config import add_ons, parse, stack_values
from infra.kubernetes.helm import Chart, merged
from sandbox import chart_pack, paths, toolchain
from sandbox.cluster import ClusterError, current_settings, kubectl
from sandbox.node.images import OPS, REGISTRY
from sandbox.services import ClusterSettings

QUEUEING = ("jobset", "kueue")
"""Kueue after the kinds of jobs that it queues: it looks for them when it starts, then every two minutes."""
READY_S = 180
_STEERED = {"steering": {"image": f"{REGISTRY}/{OPS}@sha256:{'0' * 64}"}}
"""Kueue as of a stack that steers its runs: tests do, and nothing else is different."""


def install(
    settings: ClusterSettings,
    console: Console,
    names: Iterable[str] = QUEUEING,
    more: Mapping[str, Any] = {},
) -> None:
    """Install or upgrade these add-ons in this order, and wait until their controllers are ready.

    `more`: values of the stack file in addition to those of Pulumi.local.yaml.

    Raises:
        ToolchainError: Helm, a chart or a controller cannot be built.
        ClusterError: Helm failed, or a controller is not ready in time.
    """
    values = stack_values(paths.PROJECT / "Pulumi.local.yaml")
    config = parse(merged(merged(values, _STEERED), more))
    plans = [add_ons.plan(ADD_ONS[name], config) for name in names]
    charts = {plan.add_on: add_ons.chart(config, plan.add_on) for plan in plans}
    chart_pack.provide(charts, console)
    for plan in plans:
        home = namespace(ADD_ONS[plan.add_on].namespace, [plan])
        _apply(settings, [home, *plan.before])
        if ADD_ONS[plan.add_on].chart:
            _install(settings, console, plan, charts[plan.add_on])
        _apply(settings, plan.objects)
    for plan in plans:
        options = ("--namespace", ADD_ONS[plan.add_on].namespace, f"--timeout={READY_S}s")
        kubectl(settings, "rollout", "status", "deployment", *options)


def _apply(settings: ClusterSettings, objects: Iterable[Mapping[str, Any]]) -> None:
    if items := list(objects):
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        kubectl(settings, "apply", "--server-side", "-f", "-", stdin=listed)


def _install(settings: ClusterSettings, console: Console, plan: Installable, chart: Chart) -> None:
    add_on, home = ADD_ONS[plan.add_on], settings.state.home / "helm"
    program = toolchain.ensure(console, "helm").binaries["helm"]
    values = merged(merged(plan.values, chart.image_values), chart.values)
    archive = str(paths.PROJECT / chart.archive)
    done = subprocess.run(
        [
            *(str(program), "upgrade", "--install", add_on.release_name, archive),
            *("--namespace", add_on.namespace, "--kubeconfig", str(settings.state.kubeconfig)),
            *("--values", "-"),
        ],
        input=yaml.safe_dump(json.loads(json.dumps(values))),
        env={
            **os.environ,
            **{f"HELM_{one}_HOME": str(home) for one in ("CACHE", "CONFIG", "DATA")},
        },
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ClusterError(f"helm upgrade {add_on.release_name}: {last}")


if __name__ == "__main__":
    shown = Console()
    install(current_settings(toolchain.ensure_for_runs(shown)), shown)
