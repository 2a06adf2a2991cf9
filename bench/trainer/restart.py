"""P2: time of a relaunch on two ranks, compared with a plain script under torchrun.

From the start of a new launcher to the first step that it does; both resume a checkpoint. Neighbouring
measurements are compared, A B B A, since the machine is shared.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.statistics import median_and_bound
from bench.trainer import Progress
from bench.trainer.live_runs import LiveRun, Shape, baseline_run, prepare_dataset, trainer_run

SIZES: Final = {"small": {"pairs": 2}, "full": {"pairs": 10}}
GOAL: Final = 0.75
"""Maximum ratio of the trainer to torchrun (P2)."""
_SHAPE: Final = Shape(hidden=64, layers=4)
_FOREVER: Final = 10**9


def run(sizes: Mapping[str, int], seed: int, notify: Progress) -> tuple[str, bool]:
    """Measure relaunches; return the section and whether every run resumed."""
    chance, pairs = random.Random(seed), sizes["pairs"]
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        root = Path(folder)
        arms = {
            "ours": trainer_run(root / "ours", prepare_dataset(root), _SHAPE, _FOREVER, 20),
            "torchrun": baseline_run(root / "torchrun", "mlp", _FOREVER, 20),
        }
        times = _measure(arms, pairs, chance, notify)
    return _section(times, pairs), True


def _measure(
    arms: dict[str, LiveRun], pairs: int, chance: random.Random, notify: Progress
) -> dict[str, list[float]]:
    """Seconds by arm, in the order of the pairs."""
    times: dict[str, list[float]] = {name: [] for name in arms}
    try:
        for live in arms.values():
            live.start()
            live.reach(25)  # the first checkpoint is there
            live.kill()
        for number in range(pairs):
            notify(f"pair {number + 1}", pairs, number)
            for name in list(arms) if number % 2 == 0 else list(reversed(arms)):
                times[name].append(_relaunch(arms[name], chance))
    finally:
        for live in arms.values():
            live.kill()
    return times


def _relaunch(live: LiveRun, chance: random.Random) -> float:
    before = live.mark()
    assert before is not None
    begun = time.time()
    live.start()
    first = live.next_mark(before)
    live.reach(first.step + chance.randrange(5, 20))
    live.kill()
    return first.at - begun


def _section(times: dict[str, list[float]], pairs: int) -> str:
    ratios = [a / b for a, b in zip(times["ours"], times["torchrun"], strict=True)]
    middle, low, high = median_and_bound(ratios)
    ours, peer = (median_and_bound(times[name])[0] for name in ("ours", "torchrun"))
    verdict = "met" if middle <= GOAL else f"missed by {middle - GOAL:.2f}"
    lines = [
        "P2: time from the start of a new launcher to the first resumed step.",
        "",
        f"Two ranks on CPUs, {pairs} pairs of adjacent measurements, median and confidence bound. The peer is a"
        " plain",
        "torch script (DistributedDataParallel, AdamW, dcp) under torchrun; the trainer also verifies its",
        "checkpoint.",
        "",
        "| ours, s | torchrun, s | ratio | goal | |",
        "|---|---|---|---|---|",
        f"| {ours:.2f} | {peer:.2f} | {middle:.2f} ({low:.2f} to {high:.2f}) | {GOAL} | {verdict} |",
    ]
    return "\n".join(lines) + "\n"
