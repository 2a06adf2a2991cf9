"""Recorded spot traces: files as in SkyPilot's spot-traces, and the zones of one region combined."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_NAME: Final = re.compile(
    r"(?P<kind>\w+?)_(?P<nodes>\d+)-node_(?P<start>.+)_(?P<zone>[a-z0-9-]+)_(?P<gpu>\w+?)_(?P<gpus>\d+)"
)
GAP_MAX_S: Final = 24 * 3600


class TraceError(ValueError):
    """One line per file that is not a trace."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Whether a gang's capacity was available, per zone and tick."""

    name: str
    gap_s: int
    nodes: int
    """Of the gang."""
    zones: dict[str, tuple[bool, ...]]
    counts: tuple[float, ...] = ()
    """Nodes that could be had at each tick; empty where zones are combined."""

    @property
    def ticks(self) -> int:
        """Length of the shortest zone."""
        return min(len(z) for z in self.zones.values())


def load(folder: Path, nodes: int | None = None) -> list[Trace]:
    """Return each file of a folder as a trace, then one trace per region with several zones at the same time.

    `nodes`: gang size where the file has more; default: the file's. Raises TraceError with a line per bad file.
    """
    found, groups, issues = [], dict[tuple[Any, ...], list[Trace]](), []
    for path in sorted(folder.rglob("*.json")):
        try:
            trace, group = _read(path, nodes)
        except (ValueError, TypeError, KeyError) as error:
            issues.append(
                f"{path}: {error}; expected metadata.gap_seconds and data, a list of counts"
            )
            continue
        found.append(trace)
        if group:
            groups.setdefault(group, []).append(trace)
    if issues or not found:
        raise TraceError(
            "\n".join(issues) or f"{folder}: no trace; expected a folder with NAME.json"
        )
    return found + [_combined(g) for g in groups.values() if len({*_zones(g)}) > 1]


def _zones(group: list[Trace]) -> list[str]:
    return [zone for trace in group for zone in trace.zones]


def _read(path: Path, nodes: int | None) -> tuple[Trace, tuple[Any, ...] | None]:
    raw = json.loads(path.read_text())
    gap, data = raw["metadata"]["gap_seconds"], raw["data"]
    if not 0 < gap <= GAP_MAX_S:
        raise ValueError(f"gap_seconds is {gap}; must be above 0 and at most {GAP_MAX_S}")
    if not isinstance(data, list) or any(isinstance(n, bool) or n != n or n < 0 for n in data):
        raise ValueError("data has something else than counts")
    name = (
        f"{path.parent.name}_{path.stem}"
        if path.parent.name.startswith(("aws", "gcp"))
        else path.stem
    )
    parts = _NAME.fullmatch(path.stem)
    size = int(parts["nodes"]) if parts else int(max(data, default=1)) or 1
    size = min(size, nodes or size)
    zone = parts["zone"] if parts else "zone"
    there = tuple(n >= size for n in data)
    trace = Trace(
        name=name, gap_s=max(1, round(gap)), nodes=size, zones={zone: there}, counts=tuple(data)
    )
    if not parts:
        return trace, None
    region = re.sub(r"-?[a-z]$", "", zone)
    return trace, (
        parts["kind"],
        parts["start"],
        region,
        parts["gpu"],
        parts["gpus"],
        size,
        trace.gap_s,
    )


def _combined(group: list[Trace]) -> Trace:
    first = group[0]
    zones = {zone: there for trace in group for zone, there in trace.zones.items()}
    ends = "+".join(zone[-1] for zone in zones)
    only = next(iter(first.zones))
    return Trace(
        name=first.name.replace(only, only[:-1] + ends),
        gap_s=first.gap_s,
        nodes=first.nodes,
        zones=zones,
    )
