"""Add-ons of the local stack: controllers and charts of the toolchain, which `pulumi up` installs, or `install`.

Charts are packed as archives, whose digest is the same everywhere. `install` is for clusters whose stacks expect
add-ons: those of tests and benches.
"""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from rich.console import Console

from infra.addons.component import namespace
from infra.addons.model import ChartSource, Installable
from infra.addons.registry import ADD_ONS, CHART_SOURCES
from infra.config import add_ons, parse, stack_values
from infra.kubernetes import chart_archives
from infra.kubernetes.helm import Chart, merged
from sandbox import paths, toolchain
from sandbox.cluster import ClusterError, current_settings, kubectl
from sandbox.node.images import CONTROLLERS, OPS, REGISTRY
from sandbox.services import ClusterSettings
from sandbox.toolchain.tools import ON_DEMAND_TOOLS, Tool

_TESTS: Final = "tests"
"""Folder of a chart that only its developers use; `helm package` leaves it out, too."""
_ABOUT: Final = Path("Chart.yaml")
_BLOCK: Final = 0xFFFF


def provide(charts: Mapping[str, Chart], console: Console) -> None:
    """Put those of these charts that the toolchain has into the project's folder, so that they are not pulled.

    It also builds their controllers. `charts`: by name of the add-on. One with another digest is left to its
    registry, with a line that names both.

    Raises ToolchainError: a controller or a chart's module cannot be had.
    """
    images = [f"{i.registry}/{i.repository}" for name in charts for i in ADD_ONS[name].images]
    if tools := [CONTROLLERS[one].tool for one in images if one in CONTROLLERS]:
        toolchain.ensure(console, *tools)
    for name, chart in charts.items():
        source = CHART_SOURCES.get(name)
        tool = next((t.name for t in ON_DEMAND_TOOLS if source and _is_chart(t, source)), "")
        if source and tool and chart.digest and not (paths.PROJECT / chart.archive).is_file():
            content = pack(toolchain.ensure(console, tool).assets[tool] / source.path)
            if (found := chart_archives.digest_of(content)) == chart.digest:
                chart_archives.keep(chart, content, paths.PROJECT)
                continue
            line = f"charts.{name}.digest: {chart.digest}; the chart of {tool} has {found}; pulling the former"
            console.print(f"  {line}", highlight=False)


def _is_chart(tool: Tool, source: ChartSource) -> bool:
    return not tool.binaries and (tool.module, source.path) == (source.module, tool.assets[0])


def pack(folder: Path) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder)
            if path.is_file() and inside.parts[0] != _TESTS:
                # Owner, mode and time are tarfile's defaults: those of no user, 0644 and 1970.
                entry = tarfile.TarInfo(f"{folder.name}/{inside.as_posix()}")
                content = path.read_bytes() if inside != _ABOUT else _about(path)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    return _gzip(packed.getvalue())


def _about(path: Path) -> bytes:
    """Return Chart.yaml without the charts that lie in the published archive only: stacks turn those off."""
    content = path.read_bytes()
    about = yaml.safe_load(content)
    needs = about.get("dependencies", [])
    kept = [one for one in needs if [*path.parent.glob(f"charts/{one['name']}*")]]
    return content if kept == needs else yaml.safe_dump(about | {"dependencies": kept}).encode()


def _gzip(content: bytes) -> bytes:
    """Return gzip's format without compression, whose result depends on the version of zlib."""
    parts = [b"\x1f\x8b\x08\0\0\0\0\0\0\xff"]
    for start in range(0, len(content), _BLOCK):
        block = content[start : start + _BLOCK]
        last = start + _BLOCK >= len(content)
        parts += [struct.pack("<BHH", last, len(block), len(block) ^ _BLOCK), block]
    parts.append(struct.pack("<II", zlib.crc32(content), len(content)))
    return b"".join(parts)


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

    Raises ToolchainError: Helm, a chart or a controller cannot be built;
    ClusterError: Helm failed, or a controller is not ready in time.
    """
    values = stack_values(paths.PROJECT / "Pulumi.local.yaml")
    config = parse(merged(merged(values, _STEERED), more))
    plans = [add_ons.plan(ADD_ONS[name], config) for name in names]
    charts = {plan.add_on: add_ons.chart(config, plan.add_on) for plan in plans}
    provide(charts, console)
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
