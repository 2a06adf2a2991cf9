"""P3: blocking time of a save, and slowdown of training while it is written."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from bench.request import Request, Result
from bench.statistics import median_and_bound
from bench.trainer import SAVE_INTERVAL_S, isolated

SIZES: dict[str, dict[str, Any]] = {
    "small": {"megabytes": 48, "rounds": 2, "steps": 3},
    "full": {"megabytes": 480, "rounds": 10, "steps": 6},
}
TITLES: Final = {
    "ours": "trainer",
    "elsewhere": "another process hashes and writes as much",
    "dcp_thread": "`dcp.async_save`, thread",
    "dcp_process": "`dcp.async_save`, process",
    "dcp": "`dcp.save`",
    "torch": "`torch.save` and fsync",
}
BACKGROUND: Final = ("ours", "elsewhere", "dcp_thread", "dcp_process")
"""Backends that write in the background."""
MEMCPY: Final = "direct"
STEP_KINDS: Final = {
    "training": "training steps (matrix products, then AdamW over the state)",
    "launches": "launch-bound steps (10 ms of tiny operations)",
}
STALL_GOAL: Final = 1.2
"""At most so many times one copy into touched memory, after `performance.md` P3."""
SLOWDOWN_GOAL: Final = 0.02
"""At most so much slower while a save is in flight."""


@dataclass(frozen=True, kw_only=True)
class SaveResult:
    """One save among steps."""

    stall_s: float
    """Per gigabyte of state."""
    slower: float | None
    """The steps that ran while it was in flight, relative to those around it, less 1; None for
    arms that write before they return."""
    background_s: float
    """From the end of the call to the end of the save, per gigabyte."""


def run(request: Request) -> Result:
    """Rounds of one save of each arm among steps of each kind, forwards and backwards in turn."""
    sizes, seed, notify = request.sizes, request.seed, request.notify
    turns = [
        (name, kind)
        for kind in STEP_KINDS
        for name in TITLES
        if kind != "launches" or _saves_in_background(name)
    ]
    results: dict[tuple[str, str], list[SaveResult]] = {turn: [] for turn in turns}
    copies: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        notify("preparing", 0, 0)
        names = {**TITLES, MEMCPY: "one copy into touched memory"}
        with isolated.worker_process(Path(folder), names, sizes["megabytes"], seed) as worker:
            for turn in turns:  # what is made once, such as processes and memory, is not measured
                worker.submit(measure, *turn, 1).result()
            for number in range(sizes["rounds"]):
                notify("rounds", sizes["rounds"], number)
                copies.append(worker.submit(copy_s).result())
                for turn in turns if number % 2 == 0 else reversed(turns):
                    results[turn].append(worker.submit(measure, *turn, sizes["steps"]).result())
    return Result(text=table(results, copies, sizes, seed), versions="libraries")


def _saves_in_background(name: str) -> bool:
    return name in BACKGROUND


def copy_s() -> float:
    """One copy of the state into touched memory, seconds per gigabyte: the least of three."""
    from bench.trainer.checkpoint_backends import RawFile

    found = isolated.worker_state()
    raw = cast(RawFile, found.arms[MEMCPY])
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        raw.copy()
        times.append(time.perf_counter() - begun)
    return statistics.median(times) * 1e9 / found.state.bytes


def measure(name: str, kind: str, steps: int) -> SaveResult:
    """Steps, a save, steps until it is done, and as many after it as before."""
    found = isolated.worker_state()
    arm, gigabytes = found.arms[name], found.state.bytes / 1e9
    step = _step_function(kind)
    around = [_step_seconds(step) for _ in range(steps)]
    begun = time.perf_counter()
    pending = arm.begin()
    returned = time.perf_counter()
    during = []
    while not pending.done():
        during.append(_step_seconds(step))
    ended = time.perf_counter()
    pending.wait()
    around += [_step_seconds(step) for _ in range(steps)]
    arm.clear(but_last=False)
    slowdown = statistics.mean(during) / statistics.mean(around) - 1 if during else None
    return SaveResult(
        stall_s=(returned - begun) / gigabytes,
        slower=slowdown,
        background_s=(ended - returned) / gigabytes,
    )


def _step_seconds(step: Callable[[], None]) -> float:
    begun = time.perf_counter()
    step()
    return time.perf_counter() - begun


def _step_function(kind: str) -> Callable[[], None]:
    """A step of that kind, on one thread; the same work each time."""
    import torch

    optimizer = isolated.worker_state().state.optimizer
    if kind == "training":
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    parameter.grad = torch.full_like(parameter, 1e-3)
        left, right = torch.ones(768, 768), torch.ones(768, 768)

        def training() -> None:
            for _ in range(4):
                left @ right
            optimizer.step()

        return training
    tiny = torch.ones(64)

    def launches() -> None:
        limit = 3000
        for _ in range(limit):
            tiny.add(1.0).mul(0.5)

    return launches


def ratio(stalls: Sequence[float], copies: Sequence[float]) -> tuple[float, float, float]:
    """To one copy, round by round: the median and its bound."""
    return median_and_bound([a / b for a, b in zip(stalls, copies, strict=True)])


def table(
    results: Mapping[tuple[str, str], Sequence[SaveResult]],
    copies: Sequence[float],
    sizes: Mapping[str, int],
    seed: int,
) -> str:
    """The section for RESULTS.md."""
    lines = [
        f"{sizes['megabytes']} MB of parameters and AdamW state, one process and one training"
        f" thread on the CPU, {sizes['rounds']} rounds (seed {seed}). One copy of the state into"
        f" resident memory: {statistics.median(copies):.3f} s/GB. Slowdown: steps during a save,"
        " relative to the same steps before and after it. The trainer's save pauses between files,"
        f" as with checkpoints {SAVE_INTERVAL_S:.0f} s apart: the same work, spread over more steps.",
        "",
        "| | blocking time, s/GB | ratio to one copy (bound) | background write, s/GB"
        " | slowdown of training steps | slowdown of launch-bound steps |",
        "|---|---|---|---|---|---|",
    ]
    for name, title in TITLES.items():
        found = results[name, "training"]
        stalls = [one.stall_s for one in found]
        cells = [title, f"{statistics.median(stalls):.3f}", _interval(ratio(stalls, copies))]
        cells.append(f"{statistics.median(one.background_s for one in found):.2f}")
        cells += [_percent(slowdown(results.get((name, kind), ()))) for kind in STEP_KINDS]
        lines.append(f"| {' | '.join(cells)} |")
    ours = [one.stall_s for one in results["ours", "training"]]
    return "\n".join(
        [*lines, "", _stall_verdict(ratio(ours, copies)), *_slowdown_verdicts(results)]
    )


def slowdown(found: Sequence[SaveResult]) -> tuple[float, float, float] | None:
    """Return the median and its bound; None if no step ran during a save."""
    values = [one.slower for one in found if one.slower is not None]
    return median_and_bound(values) if values else None


def _stall_verdict(found: tuple[float, float, float]) -> str:
    missed = f"missed by {found[0] / STALL_GOAL - 1:.0%}."
    verdict = "met." if found[0] <= STALL_GOAL else missed
    return (
        f"- The call blocks {_interval(found)} times one copy; goal at most {STALL_GOAL}; {verdict}"
    )


def _slowdown_verdicts(results: Mapping[tuple[str, str], Sequence[SaveResult]]) -> list[str]:
    lines = []
    for kind, title in STEP_KINDS.items():
        if found := slowdown(results["ours", kind]):
            missed = f"missed by {100 * (found[0] - SLOWDOWN_GOAL):.1f} points."
            verdict = "met." if found[0] <= SLOWDOWN_GOAL else missed
            goal = f"goal at most {SLOWDOWN_GOAL:.0%}"
            least = _percent(slowdown(results["elsewhere", kind]))
            lines.append(
                f"- {title[0].upper()}{title[1:]}: {_percent(found)}; {goal}; {verdict}"
                f" While another process does the same work: {least}."
            )
    return lines


def _interval(found: tuple[float, float, float]) -> str:
    middle, low, high = found
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def _percent(found: tuple[float, float, float] | None) -> str:
    if found is None:
        return ""
    middle, low, high = found
    return f"{middle:+.1%} ({low:+.1%} to {high:+.1%})"
