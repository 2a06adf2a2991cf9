"""P4 and P5: CPU cost of reading tokens and time to resume, compared with a numpy gather and peers."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.statistics import median_and_bound
from bench.trainer import Progress, loader_files, peers
from training.trainer.data.dataset import open_version
from training.trainer.data.sampler import Sampler
from training.trainer.data.windows import TokenWindows

SIZES: dict[str, dict[str, int]] = {
    "small": {"tokens": 12_000_000, "length": 2048, "batch": 64, "rounds": 2, "ms": 300},
    "full": {"tokens": 128_000_000, "length": 2048, "batch": 64, "rounds": 10, "ms": 1000},
}
"""`ms`: milliseconds of CPU time of each measurement."""

TITLES: Final = {
    "gather": "numpy gather (limit)",
    "ours": "trainer (default on CPUs)",
    "ours_ahead": "trainer, prefetching (default with a GPU)",
    "torchdata": "torchdata StatefulDataLoader",
    "litdata": "litdata StreamingDataLoader",
    "nanogpt": "nanoGPT's get_batch",
    "mosaic": "mosaicml-streaming",
}
PEER_GOALS: Final = {"torchdata": 8.0, "litdata": 14.0, "nanogpt": 20.0, "mosaic": 200.0}
"""Required speed-up of the trainer's loader, from `performance.md` P5."""
RESUMABLE: Final = ("ours", "torchdata", "litdata", "mosaic")
GATHER_GOAL: Final = 0.9
RESUME_GOAL_MS: Final = 2.0
STATE_GOAL: Final = 1024
EXPONENT_GOAL: Final = 0.05
DEPTHS: Final = tuple(10**power for power in range(3, 10))
"""Tokens, into a dataset of 10^9."""
RESUME_POINTS: Final = (0.1, 0.9)
"""Of an epoch, where peers go on."""
PREPARE_S: Final = 900.0
Speeds = dict[str, list[float]]
Resumes = dict[tuple[str, float], list[tuple[float, int]]]


class Worker:
    """One way to read, in a process of its own that waits between measurements."""

    def __init__(self, arm: str, folder: Path, sizes: Mapping[str, int], seed: int) -> None:
        self._arm = arm
        words = [arm, str(folder), str(sizes["length"]), str(sizes["batch"]), str(seed)]
        self._log = folder / f"{arm}.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [str(peers.python()), "-m", "bench.trainer.loader_arms", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=peers.ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        self._answer()

    def ask(self, what: str, amount: float) -> Any:
        """Return its answer. Raises PeersError if the process has ended."""
        assert self._process.stdin
        print(json.dumps([what, amount]), file=self._process.stdin, flush=True)
        return json.loads(self._answer())

    def end(self) -> None:
        """Stop it."""
        self._process.kill()
        self._process.wait()

    def _answer(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise peers.PeersError(f"{self._arm}: {self._log.read_text()[-300:]}")
        return line


def run(sizes: Mapping[str, int], seed: int, notify: Progress) -> tuple[str, bool]:
    """Rounds of every arm, forwards and backwards in turn; one arm runs at a time."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        prepare(folder, sizes, seed, notify)
        workers: dict[str, Worker] = {}
        try:
            for arm in TITLES:
                notify(f"starting {arm}", 0, 0)
                workers[arm] = Worker(arm, folder, sizes, seed)
            speeds, resumes = run_rounds(workers, sizes, notify)
        finally:
            for worker in workers.values():
                worker.end()
        notify("resuming at depth", 0, 0)
        depths = resume_times_by_depth(folder / "sparse", sizes, seed)
        exact = identical_across_world_sizes(folder, sizes, seed)
    return table(speeds, resumes, depths, sizes, seed, exact=exact), exact


def prepare(folder: Path, sizes: Mapping[str, int], seed: int, notify: Progress) -> None:
    """The same tokens in every format."""
    notify("writing tokens", 0, 0)
    loader_files.write_tokens(folder, sizes["tokens"], seed)
    loader_files.write_sparse(folder, DEPTHS[-1] + 2 * sizes["length"] * sizes["batch"])
    notify("writing the peers' files", 0, 0)
    command = ["-m", "bench.trainer.loader_files", str(folder), str(sizes["length"])]
    done = subprocess.run(
        [str(peers.python()), *command],
        cwd=peers.ROOT,
        capture_output=True,
        text=True,
        timeout=PREPARE_S,
        check=False,
    )
    if done.returncode:
        raise peers.PeersError(f"loader_files: {done.stderr[-300:]}")


def run_rounds(
    workers: Mapping[str, Worker], sizes: Mapping[str, int], notify: Progress
) -> tuple[Speeds, Resumes]:
    """Million tokens per CPU-second, and seconds to resume with the state's bytes."""
    speeds: Speeds = {arm: [] for arm in workers}
    resumes: Resumes = {(arm, part): [] for arm in RESUMABLE for part in RESUME_POINTS}
    for arm, part in resumes:  # a state that first has to be reached, and caches that are cold
        workers[arm].ask("resume", part)
    for number in range(sizes["rounds"]):
        notify("rounds", sizes["rounds"], number)
        for arm in list(workers) if number % 2 == 0 else reversed(list(workers)):
            tokens, seconds = workers[arm].ask("speed", sizes["ms"] / 1000)
            speeds[arm].append(tokens / seconds / 1e6)
        for arm, part in resumes if number % 2 == 0 else reversed(list(resumes)):
            resumes[arm, part].append(tuple(workers[arm].ask("resume", part)))
    return speeds, resumes


def resume_times_by_depth(
    folder: Path, sizes: Mapping[str, int], seed: int
) -> dict[int, list[float]]:
    """Seconds from a number of samples to their successors in hand, by tokens into 10^9."""
    (version,) = (path for path in (folder / "ours").iterdir() if path.is_dir())
    taken: dict[int, list[float]] = {depth: [] for depth in DEPTHS}
    for number in range(2 * sizes["rounds"] + 1):
        for depth in DEPTHS if number % 2 == 0 else reversed(DEPTHS):
            begun = time.perf_counter()
            opened = open_version(version, full_check=False)
            order = Sampler(TokenWindows([opened], "train", sizes["length"]), seed)
            rows = order.take(depth // sizes["length"], sizes["batch"])
            if number:  # the first is for the caches
                taken[depth].append(time.perf_counter() - begun)
            assert len(rows) == sizes["batch"]
    return taken


def depth_exponent(taken: Mapping[int, Sequence[float]]) -> float:
    """Of depth, in the time that a resume takes: the slope of the logarithms of medians."""
    depths = [math.log(depth) for depth in taken]
    times = [math.log(statistics.median(times)) for times in taken.values()]
    return float(np.polyfit(depths, times, 1)[0])


def identical_across_world_sizes(folder: Path, sizes: Mapping[str, int], seed: int) -> bool:
    """Whether 1, 2 and 4 ranks read the same samples for steps deep in the run, in order."""
    (version,) = (path for path in (folder / "ours").iterdir() if path.is_dir())
    windows = TokenWindows([open_version(version, full_check=False)], "train", sizes["length"])
    size = sizes["batch"]
    found = []
    for world in (1, 2, 4):
        order, share = Sampler(windows, seed), size // world
        steps = [
            order.take(step * size + rank * share, share)
            for step in (0, 7, 100_003)
            for rank in range(world)
        ]
        found.append(np.concatenate(steps))
    return all(np.array_equal(found[0], other) for other in found[1:])


def table(
    speeds: Speeds,
    resumes: Resumes,
    depths: Mapping[int, Sequence[float]],
    sizes: Mapping[str, int],
    seed: int,
    *,
    exact: bool,
) -> str:
    """The section for RESULTS.md."""
    named = peers.versions("torchdata", "litdata", "mosaicml-streaming")
    lines = [
        f"{sizes['tokens'] / 1e6:.0f} M tokens of 2 bytes, {sizes['batch']} samples of"
        f" {sizes['length']} a step; {sizes['rounds']} rounds of {sizes['ms']} ms of CPU time per"
        f" loader, one at a time, without worker processes (seed {seed}); {named}.",
        "",
        "| loader | M tokens per CPU-second, median | trainer / this (bound) | goal | |",
        "|---|---|---|---|---|",
    ]
    for arm, title in TITLES.items():
        lines.append(f"| {' | '.join(speed_cells(arm, title, speeds))} |")
    lines += [
        "",
        "Ratios are of the trainer's default on CPUs. The difference to the gather is a fixed cost per step:"
        " computing the order, and Python overhead. Prefetching costs more CPU time (thread wake-ups, samples"
        " evicted from the cache before their step) but moves it off the step.",
        "",
        "| loader | resume at 10 % of an epoch, ms (bound) | at 90 %, ms (bound) | state, bytes |",
        "|---|---|---|---|",
    ]
    for arm in RESUMABLE:
        cells = [
            _milliseconds([taken for taken, _ in resumes[arm, part]]) for part in RESUME_POINTS
        ]
        lines.append(
            f"| {TITLES[arm]} | {' | '.join(cells)} | {resumes[arm, RESUME_POINTS[0]][0][1]} |"
        )
    return "\n".join([*lines, "", *depth_lines(depths, resumes), "", _order_line(exact=exact)])


def speed_cells(arm: str, title: str, speeds: Speeds) -> list[str]:
    """Return one row: median, ratio of the trainer's loader to this one, goal and verdict."""
    cells = [title, f"{statistics.median(speeds[arm]):,.0f}", "", "", ""]
    if arm in ("ours", "ours_ahead"):
        return cells
    ratios = [ours / other for ours, other in zip(speeds["ours"], speeds[arm], strict=True)]
    middle, low, high = median_and_bound(ratios)
    goal = PEER_GOALS.get(arm, GATHER_GOAL)
    digits = 2 if middle < 10 else 0
    cells[2] = f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"
    cells[3] = f">= {goal:g}"
    cells[4] = "met" if middle >= goal else f"missed by {100 * (1 - middle / goal):.0f} %"
    return cells


def depth_lines(depths: Mapping[int, Sequence[float]], resumes: Resumes) -> list[str]:
    """How the time to resume depends on where: it should not."""
    slope, deepest = depth_exponent(depths), depths[DEPTHS[-1]]
    state = resumes["ours", RESUME_POINTS[0]][0][1]
    middle = 1000 * statistics.median(deepest)
    verdicts = [
        f"exponent {slope:+.3f} (goal <= {EXPONENT_GOAL}): {_verdict(slope <= EXPONENT_GOAL)}",
        f"{middle:.2f} ms at 10^9 tokens (goal <= {RESUME_GOAL_MS:g}): {_verdict(middle <= RESUME_GOAL_MS)}",
        f"state {state} bytes (goal <= {STATE_GOAL}): {_verdict(state <= STATE_GOAL)}",
    ]
    return [
        "Resume time of the trainer in a dataset of 10^9 tokens in 4 shards (about 0.1 ms each), from opening the"
        " files to having the first step's samples:",
        "",
        "| tokens before | ms (bound) |",
        "|---|---|",
        *(
            f"| 10^{round(math.log10(depth))} | {_milliseconds(depths[depth])} |"
            for depth in depths
        ),
        "",
        "; ".join(verdicts) + ".",
    ]


def _milliseconds(taken: Sequence[float]) -> str:
    middle, low, high = median_and_bound([1000 * seconds for seconds in taken])
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def _verdict(good: bool) -> str:
    return "met" if good else "missed"


def _order_line(*, exact: bool) -> str:
    same = "the same" if exact else "NOT the same"
    return f"1, 2 and 4 ranks read {same} samples for a step."
