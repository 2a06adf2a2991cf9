"""What pods on process nodes really use, from /proc."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandbox.node.records import PodFolder

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Of a pod since it started."""

    cpu_s: float
    """Of all its processes, those that ended included."""
    memory_bytes: int
    """Resident now; pages that processes share count for each."""


@dataclass(frozen=True)
class _Process:
    parent: int
    ticks: int
    pages: int


def processes() -> dict[int, _Process]:
    """Every process of this machine by its pid; see proc(5) for the fields."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        ticks = sum(int(number) for number in fields[11:15])
        found[int(folder.name)] = _Process(int(fields[1]), ticks, int(fields[21]))
    return found


def of_pod(folder: PodFolder, known: Mapping[int, _Process]) -> Usage | None:
    """What a pod's running containers use; None when none runs."""
    runs = [attempt.run() for attempt in folder.all_attempts() if attempt.alive()]
    roots = {int(run["pid"]) for run in runs if run and run["pid"] in known}
    if not roots:
        return None
    members = [known[pid] for pid in _below(roots, known)]
    return Usage(
        cpu_s=sum(one.ticks for one in members) / _TICKS,
        memory_bytes=sum(one.pages for one in members) * _PAGE,
    )


def _below(roots: set[int], known: Mapping[int, _Process]) -> set[int]:
    """The roots and all their descendants."""
    children: dict[int, list[int]] = {}
    for pid, one in known.items():
        children.setdefault(one.parent, []).append(pid)
    found, rest = set[int](), list(roots)
    while rest:
        pid = rest.pop()
        if pid not in found:
            found.add(pid)
            rest += children.get(pid, [])
    return found
