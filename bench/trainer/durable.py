"""P6: seconds per gigabyte to save and to load a checkpoint, compared with raw files and DCP."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.statistics import median_and_bound
from bench.trainer import Progress, isolated

SIZES: dict[str, dict[str, int]] = {
    "small": {"megabytes": 48, "rounds": 2},
    "full": {"megabytes": 1000, "rounds": 12},
}
TITLES: Final = {
    "ours": "trainer: hashed, verified, published by rename",
    "direct": "one file with O_DIRECT, including its copy",
    "buffered": "one file through the page cache, including its copy",
    "dcp": "`dcp.save`, `dcp.load`",
    "torch": "`torch.save` and fsync, `torch.load`",
}
RAW_GOAL: Final = 1.25
"""At most this much slower than the raw file, after `performance.md` P6."""
DCP_GOAL: Final = 3.0
"""At least this much faster than DCP."""
BYTES_GOAL: Final = 1.01


@dataclass(frozen=True, kw_only=True)
class SaveLoadResult:
    """One save and one load of one arm, per gigabyte of state."""

    save_s: float
    save_cpu_s: float
    load_s: float
    bytes: float
    """Bytes stored per byte of state."""
    right: bool
    """Whether every tensor was restored unchanged."""


def run(sizes: Mapping[str, int], seed: int, notify: Progress) -> tuple[str, bool]:
    """Rounds of one save and one load of each arm, forwards and backwards in turn."""
    results: dict[str, list[SaveLoadResult]] = {name: [] for name in TITLES}
    with tempfile.TemporaryDirectory() as folder:
        notify("preparing", 0, 0)
        with isolated.worker_process(Path(folder), TITLES, sizes["megabytes"], seed) as worker:
            sha_s = worker.submit(hashing_s).result()
            for number in range(sizes["rounds"]):
                notify("rounds", sizes["rounds"], number)
                for name in list(TITLES) if number % 2 == 0 else reversed(list(TITLES)):
                    results[name].append(worker.submit(measure, name).result())
    wrong = [name for name, found in results.items() if not all(one.right for one in found)]
    text = table(results, sizes, seed, sha_s)
    text += "".join(f"\n- NOT restored as it was: {TITLES[name]}." for name in wrong)
    return text, not wrong


def measure(name: str) -> SaveLoadResult:
    """One save from quiet disks, one load of what the page cache has."""
    found = isolated.worker_state()
    arm, gigabytes = found.arms[name], found.state.bytes / 1e9
    os.sync()
    begun, used = time.perf_counter(), time.process_time()
    arm.begin().wait()
    saved, saved_used = time.perf_counter() - begun, time.process_time() - used
    stored = arm.bytes() / found.state.bytes
    before = found.state.digest()
    found.state.erase()
    arm.load()  # what was written around the page cache is in it from here on
    right = found.state.digest() == before
    begun = time.perf_counter()
    arm.load()
    loaded = time.perf_counter() - begun
    arm.clear(but_last=False)
    return SaveLoadResult(
        save_s=saved / gigabytes,
        save_cpu_s=saved_used / gigabytes,
        load_s=loaded / gigabytes,
        bytes=stored,
        right=right,
    )


def hashing_s() -> float:
    """CPU seconds for the SHA-256 of a gigabyte, on one core: what raw files do without."""
    import hashlib

    content = os.urandom(8_000_000)
    begun = time.thread_time()
    for _ in range(10):
        hashlib.sha256(content).digest()
    return (time.thread_time() - begun) / 0.08


def ratio(above: Sequence[float], below: Sequence[float]) -> tuple[float, float, float]:
    """Round by round: the median and its bound."""
    return median_and_bound([a / b for a, b in zip(above, below, strict=True)])


def table(
    results: Mapping[str, Sequence[SaveLoadResult]],
    sizes: Mapping[str, int],
    seed: int,
    sha_s: float,
) -> str:
    """The section for RESULTS.md."""
    saves = {name: [one.save_s for one in found] for name, found in results.items()}
    loads = {name: [one.load_s for one in found] for name, found in results.items()}
    lines = [
        f"{sizes['megabytes']} MB of parameters and AdamW state, one process on the CPU,"
        f" {sizes['rounds']} rounds (seed {seed}). A save ends when it is durable; loads are"
        " from the page cache into existing tensors. SHA-256 alone takes"
        f" {sha_s:.2f} CPU-s/GB on one core; only the trainer computes it, for saves and loads.",
        "",
        "| | save, s/GB | CPU-s/GB | ratio to the trainer (bound) | load, s/GB | ratio to the trainer (bound)"
        " | bytes per byte of state |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, title in TITLES.items():
        cells = [title, _median(saves[name])]
        cells.append(_median([one.save_cpu_s for one in results[name]]))
        cells.append("" if name == "ours" else _interval(ratio(saves[name], saves["ours"])))
        cells.append(_median(loads[name]))
        cells.append("" if name == "ours" else _interval(ratio(loads[name], loads["ours"])))
        cells.append(f"{statistics.median(one.bytes for one in results[name]):.4f}")
        lines.append(f"| {' | '.join(cells)} |")
    stored = statistics.median(one.bytes for one in results["ours"])
    cores = len(os.sched_getaffinity(0))
    return "\n".join(
        [
            *lines,
            "",
            _at_most("Durable save, to the raw file", ratio(saves["ours"], saves["direct"])),
            _at_least("Durable save, to `dcp.save`", ratio(saves["dcp"], saves["ours"])),
            _at_most("Load, to raw read and copy", ratio(loads["ours"], loads["direct"])),
            _at_least("Load, to `dcp.load`", ratio(loads["dcp"], loads["ours"])),
            f"- Bytes: {stored:.4f}; goal at most {BYTES_GOAL}; "
            + ("met." if stored <= BYTES_GOAL else f"missed by {stored - BYTES_GOAL:.4f}."),
            f"- Reason for missed goals: the required hash takes {sha_s / cores:.2f} s/GB on all {cores} cores"
            " in each direction; raw files are not hashed.",
        ]
    )


def _at_most(what: str, found: tuple[float, float, float]) -> str:
    middle = found[0]
    verdict = "met." if middle <= RAW_GOAL else f"missed by {middle / RAW_GOAL - 1:.0%}."
    return f"- {what}: {_interval(found)} times as long; goal at most {RAW_GOAL}; {verdict}"


def _at_least(what: str, found: tuple[float, float, float]) -> str:
    middle = found[0]
    verdict = "met." if middle >= DCP_GOAL else f"missed by {1 - middle / DCP_GOAL:.0%}."
    return f"- {what}: {_interval(found)} times as fast; goal at least {DCP_GOAL}; {verdict}"


def _median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f}"


def _interval(found: tuple[float, float, float]) -> str:
    middle, low, high = found
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"
