"""What add-ons need of the toolchain: controllers, and charts as archives, whose digest is the same everywhere."""

from __future__ import annotations

import io
import struct
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml
from rich.console import Console

from infra.addons.model import ChartSource
from infra.addons.registry import ADD_ONS, CHART_SOURCES
from infra.kubernetes import chart_archives
from infra.kubernetes.helm import Chart
from sandbox import paths, toolchain
from sandbox.node.images import CONTROLLERS
from sandbox.toolchain.tools import ON_DEMAND_TOOLS, Tool

_TESTS: Final = "tests"
"""Folder of a chart that only its developers use; `helm package` leaves it out, too."""
_ABOUT: Final = Path("Chart.yaml")
_BLOCK: Final = 0xFFFF


def provide(charts: Mapping[str, Chart], console: Console) -> None:
    """Put those of these charts that the toolchain has into the project's folder, so that they are not pulled.

    It also builds their controllers. `charts`: by name of the add-on. One with another digest is left to its
    registry, with a line that names both.

    Raises:
        ToolchainError: a controller or a chart's module cannot be had.
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
