"""P3: how long a save blocks a script, and how much slower its steps are while the save is written."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import torch

from bench.request import Request, Result
from bench.statistics import Bound, interleaved, median_and_bound, ratios
from bench.trainer import saves

SIZES: dict[str, dict[str, Any]] = {
    "small": {"megabytes": 48, "rounds": 2, "steps": 3},
    "full": {"megabytes": 480, "rounds": 10, "steps": 6},
}
ARMS: Final = ("library", "dcp_thread", "dcp_process", "dcp")
BACKGROUND: Final = ("library", "dcp_thread", "dcp_process")
KINDS: Final = {
    "training": "training steps",
    "launches": "launch-bound steps (10 ms of tiny operations)",
}
STALL_GOAL: Final = 1.2
"""At most so many times one copy into touched memory."""
SLOWDOWN_GOAL: Final = 0.02
"""At most so much slower while a save is in flight."""


@dataclass(frozen=True, kw_only=True)
class Saved:
    """One save among steps; seconds per gigabyte of state."""

    copy_s: float
    """One copy into touched memory, just before."""
    stall_s: float
    background_s: float
    """From the end of the call to the end of the save."""
    slower: float | None
    """The steps that ran meanwhile, relative to those around them, less 1."""


Saves = Mapping[tuple[str, str], Sequence[Saved]]
"""By arm and kind of steps."""


def run(request: Request) -> Result:
    """Measure each script with all arms by turns."""
    parts = []
    for script, title in saves.SCRIPTS.items():
        with tempfile.TemporaryDirectory() as folder:
            found = measure(Path(folder) / script, script, request)
        parts.append(section(title, found))
    text = "\n\n".join([_about(request.sizes, request.seed), *parts])
    return Result(text=text, versions="libraries")


def measure(folder: Path, script: str, request: Request) -> Saves:
    """Measure saves of each arm among steps of each kind."""
    sizes, names = request.sizes, (*ARMS, "raw")
    turns = [
        (arm, kind) for kind in KINDS for arm in ARMS if kind == "training" or arm in BACKGROUND
    ]
    with saves.worker(folder, script, names, sizes["megabytes"], request.seed) as call:
        for turn in turns:  # what is made once, such as processes and memory, is not measured
            call(save_among_steps, *turn, 1)
        arms = {
            " ".join(turn): partial(call, save_among_steps, *turn, sizes["steps"]) for turn in turns
        }
        found = interleaved(arms, sizes["rounds"], request.notify)
    return {turn: found[" ".join(turn)] for turn in turns}


def save_among_steps(name: str, kind: str, steps: int) -> Saved:
    """Take steps, save, take steps until it is done, and as many after it as before; in the worker."""
    script, ways = saves.here()
    way, gigabytes, step = ways[name], script.bytes / 1e9, _step(kind, script)
    copy = cast(saves.RawFile, ways["raw"]).copy
    copy_s = statistics.median(_seconds(copy) for _ in range(3))
    around = [_seconds(step) for _ in range(steps)]
    begun = time.perf_counter()
    pending = way.begin()
    returned = time.perf_counter()
    during = []
    while not pending.done():
        during.append(_seconds(step))
    ended = time.perf_counter()
    pending.wait()
    around += [_seconds(step) for _ in range(steps)]
    way.clear()
    return Saved(
        copy_s=copy_s / gigabytes,
        stall_s=(returned - begun) / gigabytes,
        background_s=(ended - returned) / gigabytes,
        slower=statistics.mean(during) / statistics.mean(around) - 1 if during else None,
    )


def _step(kind: str, script: saves.Script) -> Callable[[], None]:
    tiny = torch.ones(64)

    def launches() -> None:
        limit = 3000
        for _ in range(limit):
            tiny.add(1.0).mul(0.5)

    return script.train if kind == "training" else launches


def _seconds(step: Callable[[], None]) -> float:
    begun = time.perf_counter()
    step()
    return time.perf_counter() - begun


def _about(sizes: Mapping[str, int], seed: int) -> str:
    return (
        f"P3: {sizes['megabytes']} MB of parameters and AdamW state, one process and one training thread on the"
        f" CPU, {sizes['rounds']} rounds (seed {seed}). Slowdown: steps during a save, relative to the same"
        f" steps before and after it. A save of ours pauses between files, as with checkpoints"
        f" {saves.SAVE_INTERVAL_S:.0f} s apart: the same work, spread over more steps."
    )


def section(title: str, found: Saves) -> str:
    """Return the table of a script and its verdicts."""
    lines = [
        f"| {title} | blocking time, s/GB | ratio to one copy (bound) | background write, s/GB"
        " | slowdown of training steps | slowdown of launch-bound steps |",
        "|---|---|---|---|---|---|",
    ]
    for arm in ARMS:
        own = found[arm, "training"]
        slowdowns = [slowdown(found.get((arm, kind), ())) for kind in KINDS]
        cells = [
            saves.TITLES[arm],
            f"{statistics.median(one.stall_s for one in own):.3f}",
            str(_stall(own)),
            f"{statistics.median(one.background_s for one in own):.2f}",
            *(one.percent() if one else "" for one in slowdowns),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    stall = _stall(found["library", "training"])
    lines += ["", f"- The call blocks {stall} times one copy; {stall.goal(STALL_GOAL)}."]
    for kind, what in KINDS.items():
        if slower := slowdown(found["library", kind]):
            met = "met" if slower.middle <= SLOWDOWN_GOAL else "missed"
            lines.append(f"- {what}: {slower.percent()}; goal at most {SLOWDOWN_GOAL:.0%}: {met}.")
    return "\n".join(lines)


def _stall(found: Sequence[Saved]) -> Bound:
    return ratios([one.stall_s for one in found], [one.copy_s for one in found])


def slowdown(found: Sequence[Saved]) -> Bound | None:
    """Return how much slower steps were; None if none ran during a save."""
    values = [one.slower for one in found if one.slower is not None]
    return median_and_bound(values) if values else None
