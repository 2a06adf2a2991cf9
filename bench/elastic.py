"""P14: groups of a program leave, die, fall silent and join; what that does to its losses and steps.

`python -m bench elastic --program FOLDER --traces FOLDER --changes N --seed S [--json]`

FOLDER has elastic.py, or train.py, which takes part by `trainyard.elastic` and prints each step as groups.py says.
Every printed loss is compared with that of an undisturbed run of one group. A stall is the longest time between
two steps around a change, less a usual step. The overhead is that of examples/ddp over the same passes with
DistributedDataParallel (plain_ddp.py).
"""

from __future__ import annotations

import json
import math
import os
import random
import socket
import statistics
import struct
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import Any, Final

from bench.groups import SIGNALS, Group, Programs
from bench.request import ROOT, TRACES, Notify, Request, RequestError, Result
from bench.statistics import interleaved, ratios

SIZES: dict[str, dict[str, int]] = {
    "small": {"changes": 10, "pairs": 1, "steps": 30},
    "full": {"changes": 200, "pairs": 10, "steps": 60},
}
PROGRAM: Final = ROOT / "examples" / "ddp"
MOST_GROUPS: Final = 4
STALL_GOALS_S: Final = {"announced": 0.2, "killed": 0.5, "silent": 3.0, "joined": 0.3}
OVERHEAD_GOAL: Final = 1.03
_WARM_UP: Final = 8
"""Steps that are not measured."""
_USUAL: Final = 20
"""Steps before a change whose median is the usual one."""
_ENDLESS: Final = "--steps=1000000"

Moment = tuple[str, float, float]
"""Kind of a change, and when it began and ended in monotonic seconds."""


def run(request: Request) -> Result:
    """Measure with the traces of this repository where no others are named."""
    program, traces = request.program or PROGRAM, request.traces or TRACES
    if not script(program).is_file():
        raise RequestError(
            f"--program: {program} has neither elastic.py nor train.py; name a program"
        )
    if not any(traces.glob("*.json")):
        raise RequestError(f"--traces: no trace in {traces}; name a folder with NAME.json files")
    found = measure(program, traces, request.sizes, request.seed, request.notify)
    return Result(text=section(found), good=found["exact"], values=found, versions="libraries")


def measure(
    program: Path, traces: Path, sizes: Mapping[str, int], seed: int, notify: Notify
) -> dict[str, Any]:
    """Play the changes and measure the overhead; `exact` says whether no loss differed and no step was missing."""
    plan = plan_changes(sizes["changes"], seed, traces.glob("*.json"))
    with tempfile.TemporaryDirectory(prefix="trainyard-elastic-") as text:
        folder = Path(text)
        run = Programs(folder / "changes", [str(script(program)), _ENDLESS])
        run.folder.mkdir()
        try:
            moments = play(run, plan, random.Random(seed), notify)
            groups = list(run.started)
            for group in groups:
                group.kill()
            notify("undisturbed run", 0, 0)
            differing, missing = run.compare()
        finally:
            run.stop()
        ends = step_ends(groups)
        overhead = measure_overhead(folder, sizes, notify)
    gaps = [(b, b - a) for a, b in pairwise(ends)]
    begins = [begun for _, begun, _ in moments[1:]] + [math.inf]
    stalls = defaultdict[str, list[float]](list)
    for (kind, begun, ended), upcoming in zip(moments, begins, strict=True):
        stalls[kind].append(stall_seconds(gaps, begun, ended, upcoming))
    return {
        "program": os.path.relpath(program, ROOT),
        "seed": seed,
        "changes": len(moments),
        "steps": len(ends),
        "step_seconds": statistics.median(gap for _, gap in gaps),
        "differing_losses": len(differing),
        "differing_bits": sum(differing_bits(a, b) for _, a, b in differing),
        "missing_steps": len(missing),
        "exact": not differing and not missing,
        "stall_seconds": {kind: quantiles(found) for kind, found in sorted(stalls.items())},
        "overhead": overhead,
        "load": os.getloadavg()[0],
        "cores": len(os.sched_getaffinity(0)),
    }


def script(program: Path) -> Path:
    """Return the script of a program's folder."""
    own = program / "elastic.py"
    return own if own.is_file() else program / "train.py"


def plan_changes(count: int, seed: int, traces: Iterable[Path] = ()) -> list[str]:
    """Return kinds of changes: half as in recorded traces, if there are any, the rest at random.

    The number of groups stays between 1 and MOST_GROUPS.
    """
    chance, groups, plan = random.Random(seed), 1, list[str]()
    wanted = _trace_targets(sorted(traces), chance)
    while len(plan) < count:
        target = wanted.pop(0) if wanted and len(plan) < count // 2 else None
        while target == groups:
            target = wanted.pop(0) if wanted else None
        up = groups == 1 or (groups < MOST_GROUPS and chance.random() < 0.5)
        if target is not None:
            up = target > groups
        plan.append("joined" if up else chance.choice(list(SIGNALS)))
        groups += 1 if up else -1
    return plan


def _trace_targets(traces: Sequence[Path], chance: random.Random) -> list[int]:
    """Return numbers of groups, one apart from the next, that follow the capacity of the traces."""
    found = [1]
    for file in chance.sample(list(traces), len(traces)):
        capacity = json.loads(file.read_text())["data"]
        most = max(capacity) or 1
        for value in capacity:
            target = max(1, round(MOST_GROUPS * value / most))
            while found[-1] != target:
                found.append(found[-1] + (1 if target > found[-1] else -1))
    return found[1:]


def play(run: Programs, plan: Sequence[str], chance: random.Random, notify: Notify) -> list[Moment]:
    """Play the changes, each once all groups have taken steps without one."""
    alive = [run.start()]
    run.settle(alive)
    moments = []
    for number, kind in enumerate(plan):
        notify("changes", len(plan), number)
        if kind == "joined":
            run.prepare()
            run.settle(alive)
        begun = time.monotonic()
        if kind == "joined":
            alive.append(run.join(alive))
        else:
            run.lose(alive, chance.choice(alive), kind)
        moments.append((kind, begun, time.monotonic()))
        run.settle(alive)
    return moments


def step_ends(groups: Iterable[Group]) -> list[float]:
    """Return when each step was first printed by any group."""
    first: dict[int, float] = {}
    for step in (step for group in groups for step in group.steps):
        first[step.number] = min(step.at, first.get(step.number, math.inf))
    return [at for _, at in sorted(first.items())]


def stall_seconds(
    gaps: Sequence[tuple[float, float]], begun: float, ended: float, upcoming: float
) -> float:
    """Return how long survivors waited for one change: its longest step, less a usual one.

    `gaps`: the time at which each step ended, and seconds since the step before it; `upcoming`: when the next
    change began, whose stall is its own.
    """
    around = [gap for at, gap in gaps if begun < at < upcoming and at - gap < ended]
    # A step takes longer with fewer groups: that is no stall.
    before = [gap for at, gap in gaps if at < begun][-_USUAL:]
    after = [gap for at, gap in gaps if ended < at < upcoming]
    return max(around) - max(statistics.median(before), statistics.median(after or before))


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Return number, median and 95th percentile."""
    ordered = sorted(values)
    p95 = ordered[math.ceil(0.95 * len(ordered)) - 1]
    return {"count": len(ordered), "p50": statistics.median(ordered), "p95": p95}


def differing_bits(one: str, other: str) -> int:
    """Return in how many bits two printed numbers differ as float64."""
    first, second = (
        int.from_bytes(struct.pack("<d", float(text)), "little") for text in (one, other)
    )
    return (first ^ second).bit_count()


def measure_overhead(folder: Path, sizes: Mapping[str, int], notify: Notify) -> dict[str, Any]:
    """Compare a step of two groups with one of plain DDP on two ranks, in pairs that alternate."""
    made = count()

    def measured(cost: Callable[[Path, int], tuple[float, float]]) -> tuple[float, float]:
        place = folder / f"overhead-{next(made)}"
        place.mkdir()
        return cost(place, sizes["steps"])

    arms = {"plain": partial(measured, _plain), "elastic": partial(measured, _elastic)}
    costs = interleaved(arms, sizes["pairs"], notify)
    found: dict[str, Any] = {}
    for index, what in enumerate(("step", "processor")):
        plain, ours = ([cost[index] for cost in costs[name]] for name in ("plain", "elastic"))
        middle, low, high = ratios(ours, plain)
        found[what] = {
            "plain_s": statistics.median(plain),
            "elastic_s": statistics.median(ours),
            "ratio": middle,
            "bound": [low, high],
        }
    return found


def _elastic(folder: Path, steps: int) -> tuple[float, float]:
    run = Programs(folder, [str(script(PROGRAM)), _ENDLESS, "--save-every=0"])
    try:
        groups = [run.start(), run.start()]
        run.settle(groups)
        return _step_cost(run, groups, steps)
    finally:
        run.stop()


def _plain(folder: Path, steps: int) -> tuple[float, float]:
    run = Programs(folder, [])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    command = [sys.executable, str(ROOT / "bench" / "plain_ddp.py"), str(PROGRAM)]
    for rank in range(2):
        own = os.environ | address | {"RANK": str(rank), "OMP_NUM_THREADS": "1"}
        run.started.append(Group(f"rank-{rank}", command, own, folder / f"rank-{rank}.log"))
    try:
        return _step_cost(run, run.started, steps)
    finally:
        run.stop()


def _step_cost(run: Programs, groups: Sequence[Group], steps: int) -> tuple[float, float]:
    """Return the median seconds of a step, and the mean processor seconds of all processes for one."""
    reader, first = groups[0], groups[0].last + _WARM_UP
    run.until(lambda: reader.last >= first, "steps to warm up", groups)
    begun, used = reader.last, sum(group.processor_seconds() for group in groups)
    run.until(lambda: reader.last >= begun + steps, "steps", groups)
    ended, used = reader.last, sum(group.processor_seconds() for group in groups) - used
    times = [step.at for step in reader.steps if begun <= step.number <= ended]
    return statistics.median(b - a for a, b in pairwise(times)), used / (ended - begun)


def section(found: Mapping[str, Any]) -> str:
    """Return the section of RESULTS.md."""
    lines = [
        f"P14: {found['changes']} changes (seed {found['seed']}) of {found['program']} in {found['steps']} steps"
        f" of {1000 * found['step_seconds']:.0f} ms, 1 to {MOST_GROUPS} groups of one process on"
        f" {found['cores']} cores, load {found['load']:.1f}: {found['differing_losses']} losses differ from those"
        f" of an undisturbed group, in {found['differing_bits']} bits; {found['missing_steps']} steps missing.",
        "",
        "| change | times | stall p50, s | p95, s | |",
        "|---|---|---|---|---|",
    ]
    for kind, values in found["stall_seconds"].items():
        verdict = _verdict(values["p95"], STALL_GOALS_S[kind], " s")
        cells = (kind, values["count"], f"{values['p50']:.3f}", f"{values['p95']:.3f}", verdict)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += [
        "",
        "A step of examples/ddp without changes, two ranks of plain DDP / two groups; processor time is that of"
        " both processes:",
        "",
        "| | ms | ratio (bound) | |",
        "|---|---|---|---|",
    ]
    for what, cost in found["overhead"].items():
        low, high = cost["bound"]
        times = f"{1000 * cost['plain_s']:.1f} / {1000 * cost['elastic_s']:.1f}"
        ratio = f"{cost['ratio']:.3f} ({low:.3f} to {high:.3f})"
        lines.append(
            f"| {what} | {times} | {ratio} | {_verdict(cost['ratio'], OVERHEAD_GOAL, 'x')} |"
        )
    return "\n".join(lines)


def _verdict(got: float, goal: float, unit: str) -> str:
    return f"goal {goal}{unit}: {'met' if got <= goal else f'missed by {got - goal:.3f}'}"
