"""Install charts of controllers with Helm, for clusters whose stack expects them: tests and benches."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable

import yaml
from rich.console import Console

from infra.addons import simulated
from infra.addons.registry import ADD_ONS
from infra.domain import naming
from sandbox import toolchain
from sandbox.cluster import ClusterError, kubectl
from sandbox.services import ClusterSettings

QUEUEING = ("jobset", "kueue")
"""Kueue after the kinds of jobs that it queues: it looks for them when it starts, then every two minutes."""
READY_S = 180


def install(settings: ClusterSettings, console: Console, add_ons: Iterable[str] = QUEUEING) -> None:
    """Install or upgrade the charts of these add-ons and wait until their controllers are ready.

    Raises:
        ToolchainError: Helm or a chart cannot be built.
        ClusterError: Helm failed, or a controller is not ready in time.
    """
    names = list(add_ons)
    tools = toolchain.ensure(console, "helm", *(f"{name}-chart" for name in names))
    for name in names:
        _install(settings, tools, name)
    for name in names:
        options = ("--namespace", ADD_ONS[name].namespace, f"--timeout={READY_S}s")
        kubectl(settings, "rollout", "status", "deployment", *options)


def _install(settings: ClusterSettings, tools: toolchain.Toolchain, name: str) -> None:
    plan, add_on = simulated.plan(name), ADD_ONS[name]
    assert add_on.chart_source is not None
    labels = {**naming.object_labels("operators"), **plan.namespace_labels}
    metadata = {"name": add_on.namespace, "labels": labels}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    objects = {"apiVersion": "v1", "kind": "List", "items": [namespace, *plan.before]}
    kubectl(settings, "apply", "--server-side", "-f", "-", stdin=json.dumps(objects))
    chart = tools.assets[f"{name}-chart"] / add_on.chart_source.path
    home = settings.state.home / "helm"
    done = subprocess.run(
        [
            *(str(tools.binaries["helm"]), "upgrade", "--install", add_on.release_name, str(chart)),
            *("--namespace", add_on.namespace, "--kubeconfig", str(settings.state.kubeconfig)),
            *("--values", "-"),
        ],
        input=yaml.safe_dump(json.loads(json.dumps(simulated.chart_values(plan)))),
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
