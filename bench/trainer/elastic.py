"""Elastic groups (P14): seeded changes, steady state against plain DDP, torchft, traces.

`python -m bench elastic --traces FOLDER --changes N --seed S [--json]`
"""

from __future__ import annotations

import math
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from bench.trainer import TRACES, Progress, elastic_peer, elastic_traces
from bench.trainer.elastic_changes import (
    CONFIG,
    GLOBAL_SAMPLES,
    MOST_GROUPS,
    WORKERS,
    Changes,
    plan_changes,
    play_changes,
)
from bench.trainer.elastic_groups import GroupRun, free_port
from bench.trainer.elastic_traces import Stalls
from bench.trainer.live_runs import prepare_dataset
from bench.trainer.peers import PeersError

SIZES: dict[str, dict[str, int]] = {
    "small": {"changes": 10, "pairs": 1, "steps": 30, "kills": 1},
    "full": {"changes": 200, "pairs": 5, "steps": 60, "kills": 4},
}
STALL_GOALS_S: Final = {"announced": 0.2, "killed": 0.5, "silent": 3.0}
OVERHEAD_GOAL: Final = 1.03
PLATFORM_RESTART_S: Final = 27.0
"""From a reclaim to the first step of the resumed gang on the sandbox, with queueing and placement."""
_WARM_UP: Final = 8
"""Steps that are not measured."""
_SHAPE: Final = {"hidden": 128, "wide": 384, "length": 64}
"""Of the model and its samples, wherever steps of different programs are compared."""


def run(sizes: Mapping[str, int], seed: int, notify: Progress) -> tuple[str, bool]:
    """Measure with the traces of this repository; return Markdown, and whether all assertions held."""
    found = measure(sizes, seed, TRACES, notify)
    return section(found), found["exact"]


def measure(sizes: Mapping[str, int], seed: int, traces: Path, notify: Progress) -> dict[str, Any]:
    """Measure everything; `exact` says whether no loss differed and no step is missing."""
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
        notify("torchft", 0, 0)
        kills, not_compared = _compare_with_torchft(root / "kills", data, sizes, seed)
    return {
        "seed": seed,
        "exact": not (changes.different_losses or changes.missing_steps),
        "load": os.getloadavg()[0],
        "cores": len(os.sched_getaffinity(0)),
        **_about(changes),
        "stall_seconds": _stalls(changes.stalls),
        "steady": steady,
        "restart_seconds": restart_s,
        "kills": kills,
        "not_compared": not_compared,
        "traces": [
            elastic_traces.replay(
                file,
                _arms(changes, kills),
                _starts(restart_s),
                2 * steady["2"]["elastic_step_s"],
            )
            for file in files
        ],
    }


def _compare_with_torchft(
    folder: Path, data: Path, sizes: Mapping[str, int], seed: int
) -> tuple[dict[str, Any], str]:
    """Return what `elastic_peer.compare` finds, or why torchft does not run here."""

    def make_run(folder: Path) -> GroupRun:
        return _new_run(folder, data, seed, ["groups.silent_after_s=1.5"])

    shape = {**_SHAPE, "samples": GLOBAL_SAMPLES, "seed": seed}
    try:
        return elastic_peer.compare(folder, make_run, shape, sizes["kills"]), ""
    except PeersError as error:
        return {}, str(error)


def _arms(changes: Changes, kills: Mapping[str, Any]) -> dict[str, Stalls | None]:
    """Return what a change costs by program: every loss is a kill; joins of torchft, not measured, are free."""
    ours = {kind: statistics.median(values) for kind, values in changes.stalls.items()}
    lost = {name: row["stall_p50_s"] for name, row in kills.items()}
    lost.setdefault(elastic_peer.OURS, max(ours.values()))
    joined = {elastic_peer.OURS: ours.get("joined", 0.0)}
    arms = {
        name: Stalls(lost_s=seconds, joined_s=joined.get(name, 0.0))
        for name, seconds in lost.items()
    }
    return {**arms, "stop and resume": None}


def _starts(restart_s: float) -> dict[str, float]:
    """Return seconds until new processes take a step, alone and after queueing."""
    return {"processes": restart_s, "with queueing": PLATFORM_RESTART_S}


def section(found: Mapping[str, Any]) -> str:
    """Return the section of RESULTS.md."""
    lines = [
        "P14: elastic groups.",
        "",
        f"{found['changes']} changes (seed {found['seed']}) in {found['steps']} steps of "
        f"{1000 * found['step_seconds']:.0f} ms, 1 to {MOST_GROUPS} processes on {found['cores']} cores, load "
        f"{found['load']:.1f}: {found['different_losses']} losses differ from the undisturbed run, "
        f"{found['false_losses']} groups were "
        f"excluded though alive. With a change every {found['seconds'] / max(1, found['changes']):.1f} s all took "
        f"{found['time_ratio']:.3f} times as long as undisturbed steps with the same groups.",
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
    if found["not_compared"]:
        lines += ["", f"Not compared with torchft: {found['not_compared']}"]
    else:
        lines += ["", *elastic_peer.lines(found["kills"])]
    lines += ["", *elastic_traces.lines(found["traces"], _starts(found["restart_seconds"]))]
    return "\n".join(lines) + "\n"


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
            **_SHAPE,
            most=MOST_GROUPS,
            workers=WORKERS,
            samples=GLOBAL_SAMPLES,
            silent_after_s=5.0,
        )
    )
    return GroupRun(folder, settings)


def _about(changes: Changes) -> dict[str, Any]:
    return {
        "changes": changes.count,
        "steps": changes.steps,
        "step_seconds": changes.step_s,
        "seconds": changes.seconds,
        "time_ratio": changes.time_ratio,
        "different_losses": changes.different_losses,
        "missing_steps": changes.missing_steps,
        "false_losses": changes.false_losses,
    }


def _stalls(found: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    return {kind: _quantiles(values) for kind, values in sorted(found.items())}


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)]
    return {"count": len(ordered), "p50": statistics.median(ordered), "p95": p95}


def _verdict(got: float, goal: float, unit: str) -> str:
    result = "met" if got <= goal else f"missed by {got - goal:.3f}"
    return f"goal {goal}{unit}: {result}"
