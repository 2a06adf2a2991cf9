"""P1: goodput of a run that is interrupted repeatedly.

Both train the same Llama on two ranks of this machine under the same schedule. An interruption takes the
launcher, as a lost node takes the pod: half of them with notice (SIGTERM to the launcher), half without
(SIGKILL of all its processes). It is started again as soon as it has ended. The peer is a plain script
under torchrun that saves synchronously with dcp at the Young/Daly interval. Time is scaled: minutes
stand for hours, so a restart weighs far more than it would; the table also extrapolates the measured
costs to one hour between interruptions. TRAINYARD_TRACES names a folder of recorded traces to use
instead of the synthetic ones.
"""

from __future__ import annotations

import math
import os
import random
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from bench.trainer import Progress
from bench.trainer.live_runs import (
    LiveRun,
    Shape,
    baseline_run,
    prepare_dataset,
    step_and_stall_seconds,
    trainer_run,
)
from bench.trainer.schedules import TRACES, Interruption, poisson_schedule, trace_schedule

SIZES: Final = {
    "small": {"seconds": 25, "mean_s": 8, "control_s": 4},
    "full": {"seconds": 50, "mean_s": 10, "control_s": 10},
}
GOODPUT_GOAL: Final = 0.97
LOST_RATIO_GOAL: Final = 5.0
HOUR_S: Final = 3600.0
_SHAPE: Final = Shape(hidden=144, layers=4)
_FOREVER: Final = 10**9
_OUR_INTERVAL_S: Final = 1.0
"""Between our checkpoints: a step waits for one copy of the state only."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Of one arm without interruptions."""

    step_s: float
    save_s: float
    """That training waits for a save."""


@dataclass(frozen=True, kw_only=True)
class ScheduleResult:
    """One arm under one schedule."""

    wall_s: float
    useful_s: float
    """Steps that count, at the speed of the run without interruptions."""
    interruptions: int
    downtimes_s: Sequence[float]
    """From each interruption to the first step after it."""

    @property
    def goodput(self) -> float:
        """Share of the time spent on steps that count."""
        return self.useful_s / self.wall_s

    @property
    def lost_s(self) -> float:
        """Seconds lost per interruption, checkpoints included."""
        return (self.wall_s - self.useful_s) / max(1, self.interruptions)

    def after_an_hour(self, save_s: float) -> float:
        """Goodput with one interruption an hour and checkpoints at the best interval for that."""
        down = statistics.fmean(self.downtimes_s) if self.downtimes_s else 0.0
        return 1 - math.sqrt(2 * save_s / HOUR_S) - down / HOUR_S


def run(sizes: Mapping[str, int], seed: int, notify: Progress) -> tuple[str, bool]:
    """Run all schedules with both arms; return the section and whether every run resumed."""
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        root = Path(folder)
        data = prepare_dataset(root)
        notify("control: ours", 6, 0)
        ours_cost = _control(
            trainer_run(root / "control", data, _SHAPE, _FOREVER, 20, 0), sizes, _trainer_cost
        )
        notify("control: torchrun", 6, 1)
        other = baseline_run(root / "plain-control", _SHAPE.llama(), _FOREVER, 20, 0)
        other_cost = _control(other, sizes, _baseline_cost)
        mean_s, seconds = float(sizes["mean_s"]), float(sizes["seconds"])
        every = {
            "ours": max(1, round(_OUR_INTERVAL_S / ours_cost.step_s)),
            "torchrun": max(
                1, round(math.sqrt(2 * other_cost.save_s * mean_s) / other_cost.step_s)
            ),
        }
        costs = {"ours": ours_cost, "torchrun": other_cost}
        rows = []
        for number, (name, schedule) in enumerate(_schedules(seed, mean_s, seconds)):
            played: dict[str, ScheduleResult] = {}
            for turn, arm in enumerate(
                ("ours", "torchrun") if number % 2 == 0 else ("torchrun", "ours")
            ):
                notify(f"{name}: {arm}", 6, 2 + 2 * number + turn)
                place = root / f"{number}-{arm}"
                live = (
                    trainer_run(place, data, _SHAPE, _FOREVER, every[arm], 0)
                    if arm == "ours"
                    else baseline_run(place, _SHAPE.llama(), _FOREVER, every[arm], 0)
                )
                played[arm] = _run_schedule(live, schedule, seconds, costs[arm].step_s)
            rows.append(_row(name, played, costs))
    return _section(rows, costs, every, sizes), True


def _schedules(seed: int, mean_s: float, total_s: float) -> list[tuple[str, list[Interruption]]]:
    folder = Path(os.environ.get("TRAINYARD_TRACES", TRACES))
    file = random.Random(seed).choice(sorted(folder.glob("*.json")))
    return [
        ("Poisson", poisson_schedule(seed, mean_s, 10 * total_s)),
        (f"trace {file.stem}", trace_schedule(file, seed, mean_s, 10 * total_s)),
    ]


def _control(live: LiveRun, sizes: Mapping[str, int], measure: Callable[[LiveRun], Cost]) -> Cost:
    """Measure a run without interruptions."""
    try:
        live.start()
        first = live.reach(10)
        while live.reach(first.step + 45).at - first.at < sizes["control_s"]:
            time.sleep(0.1)
        return measure(live)
    finally:
        live.kill()


def _trainer_cost(live: LiveRun) -> Cost:
    steps, stalls = step_and_stall_seconds(live.folder / "run")
    return Cost(step_s=statistics.median(steps), save_s=statistics.fmean(stalls))


def _baseline_cost(live: LiveRun) -> Cost:
    lines = (live.folder / "progress").read_text().splitlines()
    times = [float(line.split()[1]) for line in lines]
    saves = [float(line.split()[1]) for line in (live.folder / "saves").read_text().splitlines()]
    return Cost(
        step_s=statistics.median(b - a for a, b in pairwise(times)),
        save_s=statistics.median(saves),
    )


def _run_schedule(
    live: LiveRun, schedule: Sequence[Interruption], seconds: float, step_s: float
) -> ScheduleResult:
    """Train for `seconds` under a schedule, excluding start-up."""
    downtimes: list[float] = []
    try:
        live.start()
        first = mark = live.reach(1)
        for one in schedule:
            if mark.at + one.after_s > first.at + seconds:
                break
            time.sleep(max(0.0, mark.at + one.after_s - time.time()))
            before, interrupted_at = live.reach(1), time.time()
            if one.notice:
                assert live.launcher
                live.launcher.send_signal(signal.SIGTERM)
                live.wait()
            else:
                live.kill()
            live.start()
            mark = live.next_mark(before)
            downtimes.append(mark.at - interrupted_at)
        time.sleep(max(0.0, first.at + seconds - time.time()))
        last = live.reach(1)
    finally:
        live.kill()
    return ScheduleResult(
        wall_s=last.at - first.at,
        useful_s=(last.step - first.step) * step_s,
        interruptions=len(downtimes),
        downtimes_s=downtimes,
    )


def _row(name: str, played: Mapping[str, ScheduleResult], costs: Mapping[str, Cost]) -> str:
    mine, other = played["ours"], played["torchrun"]
    ratio = other.lost_s / mine.lost_s if mine.lost_s > 0 else math.inf
    hour = {arm: played[arm].after_an_hour(costs[arm].save_s) for arm in played}
    cells: list[Any] = [
        name,
        mine.interruptions,
        f"{mine.goodput:.2f} / {other.goodput:.2f}",
        f"{mine.lost_s:.1f} / {other.lost_s:.1f}",
        _verdict(ratio, LOST_RATIO_GOAL, "x"),
        f"{hour['ours']:.4f} / {hour['torchrun']:.4f}",
        _verdict(hour["ours"], GOODPUT_GOAL, ""),
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


def _verdict(got: float, goal: float, unit: str) -> str:
    result = "met" if got >= goal else f"missed by {goal - got:.2f}"
    return f"{got:.2f}{unit} (goal {goal}{unit}: {result})"


def _section(
    rows: Sequence[str],
    costs: Mapping[str, Cost],
    every: Mapping[str, int],
    sizes: Mapping[str, int],
) -> str:
    about = ", ".join(
        f"{arm}: {cost.step_s * 1000:.0f} ms per step, {cost.save_s * 1000:.0f} ms wait per save, "
        f"one every {every[arm]} steps"
        for arm, cost in costs.items()
    )
    lines = [
        "P1: goodput under interruptions.",
        "",
        f"{about}. Each run lasts {sizes['seconds']} s with an interruption every {sizes['mean_s']} s on average,",
        "half of them with notice; each takes the launcher. Pairs are ours / torchrun. Goodput at one interruption"
        " per hour:",
        "1 - sqrt(2C/M) - R/M, with the measured wait per save C, R the time from an interruption to a step,",
        "and M = 1 h.",
        "",
        "| schedule | interruptions | measured goodput | lost per interruption, s | loss ratio | "
        "goodput at one per hour | |",
        "|---|---|---|---|---|---|---|",
        *rows,
    ]
    return "\n".join(lines) + "\n"
