"""P2: downtime of an interrupted run, compared with a plain script under torchrun.

Both resume a checkpoint on two ranks. *Relaunch*: from the start of a new launcher to the first step
that it does. *In place*: from the SIGKILL of a rank under a live launcher to the first step of its
successor. Neighbouring measurements are compared, A B B A, since the machine is shared.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.statistics import median_and_bound
from bench.trainer import Progress
from bench.trainer.live_runs import LiveRun, Shape, baseline_run, prepare_dataset, trainer_run

SIZES: Final = {"small": {"pairs": 2}, "full": {"pairs": 10}}
GOALS: Final = {"relaunch": 0.6, "in place": 0.2}
"""Maximum ratio of the trainer to torchrun (P2)."""
_SHAPE: Final = Shape(hidden=64, layers=4)
_FOREVER: Final = 10**9


def run(sizes: Mapping[str, int], seed: int, notify: Progress) -> tuple[str, bool]:
    """Measure both kinds of restart; return the section and whether every run resumed."""
    chance, pairs = random.Random(seed), sizes["pairs"]
    rows = []
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        root = Path(folder)
        data = prepare_dataset(root)
        for way, restarts in (("relaunch", 0), ("in place", 4 * pairs)):
            place = root / way.replace(" ", "-")
            place.mkdir()
            arms = {
                "ours": trainer_run(place / "ours", data, _SHAPE, _FOREVER, 20, restarts),
                "torchrun": baseline_run(place / "torchrun", "mlp", _FOREVER, 20, restarts),
            }
            times = _measure(way, arms, pairs, chance, notify)
            rows.append(_row(way, times))
    return _section(rows, pairs), True


def _measure(
    way: str, arms: dict[str, LiveRun], pairs: int, chance: random.Random, notify: Progress
) -> dict[str, list[float]]:
    """Seconds by arm, in the order of the pairs."""
    times: dict[str, list[float]] = {name: [] for name in arms}
    try:
        for live in arms.values():
            live.start()
            live.reach(25)  # the first checkpoint is there
            if way == "relaunch":
                live.kill()
            else:
                _pause(live)
        for number in range(pairs):
            notify(f"{way}: pair {number + 1}", pairs, number)
            order = list(arms) if number % 2 == 0 else list(reversed(arms))
            for name in order:
                one = _relaunch if way == "relaunch" else _restart_in_place
                times[name].append(one(arms[name], chance))
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


def _restart_in_place(live: LiveRun, chance: random.Random) -> float:
    _resume(live)
    before = live.mark()
    assert before is not None
    before = live.reach(before.step + chance.randrange(5, 20))
    killed = time.time()
    os.kill(before.pid, signal.SIGKILL)
    first = live.next_mark(before)
    _pause(live)
    return first.at - killed


def _pause(live: LiveRun) -> None:
    """Pause its processes, so that the other arm is measured on an idle machine."""
    live.signal(signal.SIGSTOP)


def _resume(live: LiveRun) -> None:
    live.signal(signal.SIGCONT)


def _row(way: str, times: dict[str, list[float]]) -> str:
    ratios = [a / b for a, b in zip(times["ours"], times["torchrun"], strict=True)]
    middle, low, high = median_and_bound(ratios)
    seconds = {name: median_and_bound(found)[0] for name, found in times.items()}
    goal = GOALS[way]
    verdict = "met" if middle <= goal else f"missed by {middle - goal:.2f}"
    return (
        f"| {way} | {seconds['ours']:.2f} | {seconds['torchrun']:.2f} "
        f"| {middle:.2f} ({low:.2f} to {high:.2f}) | {goal} | {verdict} |"
    )


def _section(rows: list[str], pairs: int) -> str:
    lines = [
        "P2: time from an interruption to the first resumed step.",
        "",
        f"Two ranks on CPUs, {pairs} pairs of adjacent measurements, median and confidence bound. The peer is a"
        " plain",
        "torch script (DistributedDataParallel, AdamW, dcp) under torchrun; the trainer also verifies its",
        "checkpoint. torchrun's in-place restarts run with",
        "`TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1`, because they otherwise do not always resume.",
        "",
        "| way | ours, s | torchrun, s | ratio | goal | |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
        "Every new launcher has to load torch once. The lower limit is a fork from a process that has loaded",
        "everything: 0.05 s.",
    ]
    return "\n".join(lines) + "\n"
