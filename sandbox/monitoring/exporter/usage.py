"""CPU and memory use of pods on process nodes, from /proc."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandbox.node.records import PodFolder

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, kw_only=True)
class Usage:
    computing_s: Mapping[int, float]
    """By pid: seconds that its main thread was runnable since it started."""
    memory_bytes: int
    """Resident now; pages that processes share count for each."""


@dataclass(frozen=True)
class _Process:
    parent: int
    pages: int


def processes() -> dict[int, _Process]:
    """Return every process of this machine by pid; see proc(5) for the fields."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        found[int(folder.name)] = _Process(int(fields[1]), int(fields[21]))
    return found


def pod_usage(folder: PodFolder, known: Mapping[int, _Process]) -> Usage | None:
    """Return the use of a pod's running containers; None when none runs."""
    runs = [attempt.run() for attempt in folder.all_attempts() if attempt.alive()]
    roots = {int(run["pid"]) for run in runs if run and run["pid"] in known}
    if not roots:
        return None
    members = _descendants(roots, known)
    return Usage(
        computing_s={pid: _computing_s(pid) for pid in members},
        memory_bytes=sum(known[pid].pages for pid in members) * _PAGE,
    )


def _computing_s(pid: int) -> float:
    """Return seconds on a CPU plus in its run queue: contention for CPUs is not GPU idleness.

    From proc(5) schedstat; 0 for a process that just ended.
    """
    try:
        ran, queued, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    except OSError:
        return 0.0
    return (int(ran) + int(queued)) / 1e9


def gpu_utilization(before: Usage, now: Usage, elapsed_s: float, gpus: int) -> float:
    """Return the utilization of a pod's GPUs, 0 to 1: one rank each, its busiest processes."""
    done = [
        min(max(seconds - before.computing_s.get(pid, 0.0), 0.0), elapsed_s)
        for pid, seconds in now.computing_s.items()
    ]
    return sum(sorted(done)[-gpus:]) / (elapsed_s * gpus)


def _descendants(roots: set[int], known: Mapping[int, _Process]) -> set[int]:
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
