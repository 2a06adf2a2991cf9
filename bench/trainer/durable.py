"""P6: seconds per gigabyte to save and to load a checkpoint, against raw files with the same hash, and DCP."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.request import Request, Result
from bench.statistics import median_and_bound
from bench.trainer import isolated
from trainyard.store import hashes

SIZES: dict[str, dict[str, Any]] = {
    "small": {"megabytes": 48, "rounds": 2},
    "full": {"megabytes": 1000, "rounds": 12},
}
TITLES: Final = {
    "ours": "trainer: hashed, verified, published by rename",
    "hashed": "one file with O_DIRECT, including its copy and the same hash",
    "direct": "one file with O_DIRECT, including its copy",
    "buffered": "one file through the page cache, including its copy",
    "dcp": "`dcp.save`, `dcp.load`",
    "torch": "`torch.save` and fsync, `torch.load`",
}
SAVE_GOAL: Final = 1.1
LOAD_GOAL: Final = 1.15
"""At most so many times the raw file with the same hash, after `performance.md` P6."""
HASH_GOAL_S: Final = 0.1
"""Seconds per GB on all cores, of which there should be two."""
BYTES_GOAL: Final = 1.01
_HASHED_BYTES: Final = 512 * 1024 * 1024
_HASHED_BLOCK: Final = 8 * 1024 * 1024


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


def run(request: Request) -> Result:
    """Rounds of one save and one load of each arm, forwards and backwards in turn."""
    sizes, seed, notify = request.sizes, request.seed, request.notify
    results: dict[str, list[SaveLoadResult]] = {name: [] for name in TITLES}
    hash_s: dict[str, list[float]] = {name: [] for name in hashes.ALGORITHMS}
    with tempfile.TemporaryDirectory() as folder:
        notify("preparing", 0, 0)
        with isolated.worker_process(Path(folder), TITLES, sizes["megabytes"], seed) as worker:
            for number in range(sizes["rounds"]):
                notify("rounds", sizes["rounds"], number)
                for name in list(TITLES) if number % 2 == 0 else reversed(list(TITLES)):
                    results[name].append(worker.submit(measure, name).result())
                for name in hash_s:
                    hash_s[name].append(worker.submit(hashing_s, name).result())
    wrong = [name for name, found in results.items() if not all(one.right for one in found)]
    text = table(results, sizes, seed, hash_s)
    text += "".join(f"\n- NOT restored as it was: {TITLES[name]}." for name in wrong)
    return Result(text=text, good=not wrong, versions="libraries")


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


def hashing_s(algorithm: str) -> float:
    """Seconds for the hash of a gigabyte in memory, with one thread per core."""
    threads = len(os.sched_getaffinity(0))
    content = memoryview(bytearray(os.urandom(_HASHED_BLOCK)))

    def hash_share(_: int) -> None:
        hasher = hashes.new_hasher(algorithm)
        for _ in range(_HASHED_BYTES // _HASHED_BLOCK // threads):
            hasher.update(content)

    with ThreadPoolExecutor(threads) as pool:
        begun = time.perf_counter()
        list(pool.map(hash_share, range(threads)))
        seconds = time.perf_counter() - begun
    return seconds * 1e9 / _HASHED_BYTES


def ratio(above: Sequence[float], below: Sequence[float]) -> tuple[float, float, float]:
    """Round by round: the median and its bound."""
    return median_and_bound([a / b for a, b in zip(above, below, strict=True)])


def table(
    results: Mapping[str, Sequence[SaveLoadResult]],
    sizes: Mapping[str, int],
    seed: int,
    hash_s: Mapping[str, Sequence[float]],
) -> str:
    """The section for RESULTS.md."""
    saves = {name: [one.save_s for one in found] for name, found in results.items()}
    loads = {name: [one.load_s for one in found] for name, found in results.items()}
    lines = [
        f"{sizes['megabytes']} MB of parameters and AdamW state, one process on the CPU,"
        f" {sizes['rounds']} rounds (seed {seed}). A save ends when it is durable; loads are"
        " from the page cache into existing tensors. The trainer and the second row hash every byte of both with"
        f" {hashes.preferred()}, the others none.",
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
    fast, slow = (median_and_bound(hash_s[name]) for name in (hashes.BLAKE3, hashes.SHA256))
    ratios = {
        "Durable save": (ratio(saves["ours"], saves["hashed"]), SAVE_GOAL),
        "Load": (ratio(loads["ours"], loads["hashed"]), LOAD_GOAL),
    }
    return "\n".join(
        [
            *lines,
            "",
            *(
                f"- {what}, to the raw file with the same hash: {_interval(found)} times as long; "
                f"{_at_most(found[0], goal)}"
                for what, (found, goal) in ratios.items()
            ),
            f"- BLAKE3 on {cores} cores: {_interval(fast)} s/GB; {_at_most(fast[0], HASH_GOAL_S)} "
            f"SHA-256: {_interval(slow)} s/GB.",
            f"- Bytes: {stored:.4f}; {_at_most(stored, BYTES_GOAL)}",
        ]
    )


def _at_most(value: float, goal: float) -> str:
    verdict = "met." if value <= goal else f"missed by {value / goal - 1:.0%}."
    return f"goal at most {goal}; {verdict}"


def _median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f}"


def _interval(found: tuple[float, float, float]) -> str:
    middle, low, high = found
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"
