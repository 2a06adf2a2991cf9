"""Elastic groups (P14): seeded changes of the membership, steady state against plain DDP, recorded traces.

`python -m bench elastic --traces FOLDER --changes N --seed S [--json]`
"""

from __future__ import annotations

import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from bench.trainer import Progress
from bench.trainer.elastic_changes import (
    CONFIG,
    MOST_GROUPS,
    WORKERS,
    Changes,
    plan_changes,
    play_changes,
)
from bench.trainer.elastic_groups import GroupRun, free_port
from bench.trainer.live_runs import prepare_dataset
from bench.trainer.schedules import TRACES

SIZES: dict[str, dict[str, int]] = {
    "small": {"changes": 10, "pairs": 1, "steps": 30},
    "full": {"changes": 200, "pairs": 5, "steps": 60},
}
STALL_GOALS_S: Final = {"announced": 0.2, "killed": 0.5, "silent": 3.0}
OVERHEAD_GOAL: Final = 1.03
PLATFORM_RESTART_S: Final = 27.0
"""From a reclaim to the first step of the resumed gang on the sandbox, with queueing and placement."""
_WARM_UP: Final = 8
"""Steps that are not measured."""


def run(sizes: Mapping[str, int], seed: int, notify: Progress) -> tuple[str, bool]:
    """Measure with the traces of this repository; return Markdown, and whether all assertions held."""
    found = measure(sizes, seed, TRACES, notify)
    return section(found), found["exact"]


def measure(sizes: Mapping[str, int], seed: int, traces: Path, notify: Progress) -> dict[str, Any]:
    """Measure everything; `exact` says whether no loss differed and each sample was used once."""
    files = sorted(traces.glob("*.json"))
    with tempfile.TemporaryDirectory(prefix="trainyard-elastic-") as text:
        root = Path(text)
        data = prepare_dataset(root)
        plan = plan_changes(sizes["changes"], seed, files)
        changes = play_changes(root / "changes", data, plan, seed, notify)
        notify("steady state", 0, 0)
        steady = {
            str(count): _steady_state(root / f"steady{count}", data, count, sizes, seed)
            for count in (2, 4)
        }
        notify("restart", 0, 0)
        restart_s = _restart_seconds(root / "restart", data, seed)
    stalls = {kind: _quantiles(values) for kind, values in sorted(changes.stalls.items())}
    return {
        "seed": seed,
        "exact": not changes.different_losses and not changes.sample_faults,
        "load": os.getloadavg()[0],
        "cores": len(os.sched_getaffinity(0)),
        **_about(changes),
        "stall_seconds": stalls,
        "steady": steady,
        "restart_seconds": restart_s,
        "traces": [_replay_file(file, changes, restart_s) for file in files],
    }


def section(found: Mapping[str, Any]) -> str:
    """Return the section of RESULTS.md."""
    lines = [
        "P14: elastic groups.",
        "",
        f"{found['changes']} changes (seed {found['seed']}) in {found['steps']} steps of "
        f"{1000 * found['step_seconds']:.0f} ms, 1 to {MOST_GROUPS} processes on {found['cores']} cores, load "
        f"{found['load']:.1f}: {found['different_losses']} losses differ from the undisturbed run, "
        f"{len(found['sample_faults'])} steps did not use each sample once, {found['false_losses']} groups were "
        "excluded though alive.",
        "",
        "| change | times | stall p50, s | p95, s | |",
        "|---|---|---|---|---|",
    ]
    for kind, values in found["stall_seconds"].items():
        goal = STALL_GOALS_S.get(kind)
        lines.append(
            f"| {kind} | {values['count']} | {values['p50']:.3f} | {values['p95']:.3f} | "
            f"{_verdict(values['p95'], goal, ' s') if goal else ''} |"
        )
    lines += [
        "",
        "A step without changes, plain DDP with as many processes / elastic: time, and processor time of all "
        "processes, which other programs on the machine disturb less:",
        "",
        "| processes | what | ms | ratio | |",
        "|---|---|---|---|---|",
    ]
    for count, steady in found["steady"].items():
        for name in ("step", "processor"):
            plain, elastic = (1000 * steady[f"{arm}_{name}_s"] for arm in ("plain", "elastic"))
            ratio = steady[f"{name}_ratio"]
            lines.append(
                f"| {count} | {name} | {plain:.1f} / {elastic:.1f} | {ratio:.3f} | "
                f"{_verdict(ratio, OVERHEAD_GOAL, 'x')} |"
            )
    lines += [
        "",
        f"Useful share of the paid group time, elastic / stop and resume, by the measured stalls and a restart of "
        f"{found['restart_seconds']:.1f} s (processes alone, here) or {PLATFORM_RESTART_S:.0f} s (with queueing). "
        "Work is proportional to groups, every loss is announced:",
        "",
        "| trace | changes | restart here | with queueing |",
        "|---|---|---|---|",
    ]
    for row in found["traces"]:
        here, there = row["here"], row["platform"]
        lines.append(
            f"| {row['trace']} | {row['changes']} | {here['elastic']:.4f} / {here['restart']:.4f} | "
            f"{there['elastic']:.4f} / {there['restart']:.4f} |"
        )
    return "\n".join(lines) + "\n"


def useful_share(
    groups: Sequence[int], tick_s: float, change_s: float, start_s: float, *, elastic: bool
) -> float:
    """Return the useful part of the paid group time for a number of groups at each tick.

    Elastic: a change stalls those that stay for `change_s`, a group that comes is useful after `start_s`. Else
    every change restarts all groups, which takes `start_s`. More than a tick is never lost.
    """
    paid = sum(groups) * tick_s
    lost = 0.0
    for before, now in pairwise([0, *groups]):
        if now == before:
            continue
        staying = min(before, now) if elastic else 0
        lost += min(tick_s, change_s) * staying + min(tick_s, start_s) * (now - staying)
    return 1 - lost / paid if paid else math.nan


def _replay_file(file: Path, changes: Changes, restart_s: float) -> dict[str, Any]:
    trace = json.loads(file.read_text())
    capacity, tick_s = trace["data"], float(trace["metadata"]["gap_seconds"])
    most = max(capacity) or 1
    groups = [
        round(MOST_GROUPS * value / most) if most > MOST_GROUPS else value for value in capacity
    ]
    stalls = [value for values in changes.stalls.values() for value in values]
    change_s = statistics.median(stalls)
    shares = {
        name: {
            kind: useful_share(groups, tick_s, change_s, start_s, elastic=kind == "elastic")
            for kind in ("elastic", "restart")
        }
        for name, start_s in (("here", restart_s), ("platform", PLATFORM_RESTART_S))
    }
    count = sum(a != b for a, b in pairwise(groups))
    return {"trace": file.stem, "changes": count, **shares}


def _steady_state(
    folder: Path, data: Path, count: int, sizes: Mapping[str, int], seed: int
) -> dict[str, float]:
    """Compare a step of plain DDP and of as many groups, in alternating pairs."""
    folder.mkdir()
    found: dict[str, list[tuple[float, float]]] = {"plain": [], "elastic": []}
    for pair in range(sizes["pairs"]):
        for arm in sorted(found, reverse=bool(pair % 2)):
            found[arm].append(_step_cost(folder / f"{arm}{pair}", data, arm, count, sizes, seed))
    result: dict[str, float] = {}
    for index, name in enumerate(("step", "processor")):
        plain, elastic = ([pair[index] for pair in found[arm]] for arm in ("plain", "elastic"))
        ratios = [e / p for p, e in zip(plain, elastic, strict=True)]
        result |= {
            f"plain_{name}_s": statistics.median(plain),
            f"elastic_{name}_s": statistics.median(elastic),
            f"{name}_ratio": statistics.median(ratios),
        }
    return result


def _step_cost(
    folder: Path, data: Path, arm: str, count: int, sizes: Mapping[str, int], seed: int
) -> tuple[float, float]:
    """Return the median seconds of a step, and the mean processor seconds of a step over all processes."""
    settings = ["groups.max=0"] if arm == "plain" else [f"groups.min={count}"]
    run = _new_run(folder, data, seed, settings)
    port = str(free_port())
    try:
        for rank in range(count):
            environment = {
                "RANK": str(rank),
                "WORLD_SIZE": str(count),
                "LOCAL_RANK": str(rank),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
            }
            run.start(environment if arm == "plain" else {})
        run.reach(_WARM_UP)
        first, before = run.last_step(), run.processor_seconds()
        run.reach(_WARM_UP + sizes["steps"])
        last, after = run.last_step(), run.processor_seconds()
        steps = run.steps()
    finally:
        run.kill()
    gaps = [float(b["time"] - a["time"]) for a, b in pairwise(steps[_WARM_UP:])]
    return statistics.median(gaps), (after - before) / (last - first)


def _restart_seconds(folder: Path, data: Path, seed: int) -> float:
    """Return the seconds from a notice to two groups until the first step of two new ones."""
    run = _new_run(folder, data, seed, ["groups.min=2"])
    try:
        for _ in range(2):
            run.start()
        run.reach(_WARM_UP)
        begun = time.time()
        (run.run_dir / "notice").touch()
        run.until(lambda: not run.view()["members"], "the run to stop")
        last = run.last_step()
        for _ in range(2):
            run.start()
        run.reach(last + 1)
        return time.time() - begun
    finally:
        run.kill()


def _new_run(folder: Path, data: Path, seed: int, settings: list[str]) -> GroupRun:
    folder.mkdir()
    (folder / "config.yaml").write_text(
        CONFIG.format(
            seed=seed,
            data=data,
            hidden=128,
            wide=384,
            length=64,
            most=MOST_GROUPS,
            workers=WORKERS,
            silent_after_s=5.0,
        )
    )
    return GroupRun(folder, settings)


def _about(changes: Changes) -> dict[str, Any]:
    return {
        "changes": changes.count,
        "steps": changes.steps,
        "step_seconds": changes.step_s,
        "different_losses": changes.different_losses,
        "sample_faults": changes.sample_faults[:10],
        "false_losses": changes.false_losses,
    }


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)]
    return {"count": len(ordered), "p50": statistics.median(ordered), "p95": p95}


def _verdict(got: float, goal: float, unit: str) -> str:
    result = "met" if got <= goal else f"missed by {got - goal:.3f}"
    return f"goal {goal}{unit}: {result}"
