"""P6: seconds per gigabyte to save and to load a checkpoint, against raw files with the same hash, and DCP."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.request import Request, Result
from bench.statistics import interleaved, ratios
from bench.trainer import saves

SIZES: dict[str, dict[str, Any]] = {
    "small": {"megabytes": 48, "rounds": 2},
    "full": {"megabytes": 1000, "rounds": 12},
}
ARMS: Final = ("library", "raw", "dcp")
SAVE_GOAL: Final = 1.1
LOAD_GOAL: Final = 1.15
"""At most so many times the raw file with the same hash."""
BYTES_GOAL: Final = 1.01


@dataclass(frozen=True, kw_only=True)
class Kept:
    """One save and one load, per gigabyte of state."""

    save_s: float
    save_cpu_s: float
    load_s: float
    bytes: float
    """Bytes stored per byte of state."""
    right: bool
    """Whether every tensor was restored unchanged."""


def run(request: Request) -> Result:
    """Measure each script with all arms by turns; good if every arm restored what it saved."""
    sizes, parts, good = request.sizes, list[str](), True
    for script, title in saves.SCRIPTS.items():
        with (
            tempfile.TemporaryDirectory() as folder,
            saves.worker(
                Path(folder) / script, script, ARMS, sizes["megabytes"], request.seed
            ) as call,
        ):
            arms = {name: partial(call, save_and_load, name) for name in ARMS}
            found = interleaved(arms, sizes["rounds"], request.notify)
        parts.append(section(title, found))
        good = good and all(one.right for own in found.values() for one in own)
    about = (
        f"P6: {sizes['megabytes']} MB of parameters and AdamW state, one process on the CPU, {sizes['rounds']}"
        f" rounds (seed {request.seed}). A save ends when it is durable; loads are from the page cache into"
        " existing tensors. The first two hash every byte, the others none."
    )
    return Result(text="\n\n".join([about, *parts]), good=good, versions="libraries")


def save_and_load(name: str) -> Kept:
    """Save from quiet disks, then load what the page cache has; in the worker."""
    script, ways = saves.here()
    way, gigabytes = ways[name], script.bytes / 1e9
    os.sync()
    begun, used = time.perf_counter(), time.process_time()
    way.begin().wait()
    saved, saved_used = time.perf_counter() - begun, time.process_time() - used
    before = script.digest()
    script.erase()
    way.load()  # what was written around the page cache is in it from here on
    right = script.digest() == before
    begun = time.perf_counter()
    way.load()
    loaded = time.perf_counter() - begun
    stored = way.bytes() / script.bytes
    way.clear()
    return Kept(
        save_s=saved / gigabytes,
        save_cpu_s=saved_used / gigabytes,
        load_s=loaded / gigabytes,
        bytes=stored,
        right=right,
    )


def section(title: str, found: Mapping[str, Sequence[Kept]]) -> str:
    """Return the table of a script and its verdicts."""
    lines = [
        f"| {title} | save, s/GB | CPU-s/GB | library / this (bound) | load, s/GB | library / this (bound)"
        " | bytes per byte of state |",
        "|---|---|---|---|---|---|---|",
    ]
    saved = {arm: [one.save_s for one in own] for arm, own in found.items()}
    loaded = {arm: [one.load_s for one in own] for arm, own in found.items()}
    for arm, own in found.items():
        cells = [
            saves.TITLES[arm],
            f"{statistics.median(saved[arm]):.2f}",
            f"{statistics.median(one.save_cpu_s for one in own):.2f}",
            "" if arm == "library" else str(ratios(saved["library"], saved[arm])),
            f"{statistics.median(loaded[arm]):.2f}",
            "" if arm == "library" else str(ratios(loaded["library"], loaded[arm])),
            f"{statistics.median(one.bytes for one in own):.4f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    save, load = (ratios(times["library"], times["raw"]) for times in (saved, loaded))
    stored = statistics.median(one.bytes for one in found["library"])
    lines += [
        "",
        f"- Durable save, to the raw file with the same hash: {save} times as long; {save.goal(SAVE_GOAL)}.",
        f"- Load, to the raw file with the same hash: {load} times as long; {load.goal(LOAD_GOAL)}.",
        f"- Bytes: {stored:.4f}; goal at most {BYTES_GOAL}: {'met' if stored <= BYTES_GOAL else 'missed'}.",
    ]
    wrong = [arm for arm, own in found.items() if not all(one.right for one in own)]
    lines += [f"- NOT restored as it was: {saves.TITLES[arm]}." for arm in wrong]
    return "\n".join(lines)
