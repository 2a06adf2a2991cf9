"""Elastic groups compared with torchft on a model of the same shape: one of two groups is killed."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from bench.trainer import peers
from bench.trainer.elastic_groups import GroupRun

OURS: Final = "elastic groups"
LIGHTHOUSES: Final[Mapping[str, Mapping[str, int]]] = {
    "torchft as documented": {"quorum_tick_ms": 100, "heartbeat_timeout_ms": 5000},
    "torchft tuned": {"quorum_tick_ms": 10, "heartbeat_timeout_ms": 500},
}
"""Settings of torchft's lighthouse: those of its README with the default heartbeat timeout, and shorter ones."""
_KILL_AFTER: Final = 20
"""Steps of both groups before the kill, and of the survivor after it."""
_RECENT: Final = 10
_TIMEOUT_S: Final = 300.0

Attempts = Sequence[Mapping[str, Any]]
"""By their order: step, whether it was kept, loss, and the Unix seconds of its end."""


def compare(
    folder: Path, make_run: Callable[[Path], GroupRun], shape: Mapping[str, int], rounds: int
) -> dict[str, Any]:
    """Return what kills cost each arm.

    `make_run` returns a run in a folder, without groups; `shape` has the values of `torchft_groups.Request` that
    describe model and data. Raises PeersError.
    """
    peers.python()
    folder.mkdir()
    arms = [OURS, *LIGHTHOUSES]
    runs: dict[str, list[tuple[Attempts, float]]] = {arm: [] for arm in arms}
    for number in range(rounds):
        for arm in reversed(arms) if number % 2 else arms:
            if arm == OURS:
                # By turns the leader and the other group.
                found = _kill_ours(make_run(folder / f"killed{number}"), victim=number % 2)
            else:
                found = _run_torchft(shape, LIGHTHOUSES[arm], kill=True)
            runs[arm].append(found)
    last = max(attempts[-1]["step"] for attempts, _ in runs[OURS])
    undisturbed = {
        OURS: _run_undisturbed(make_run(folder / "undisturbed"), last),
        **dict.fromkeys(
            LIGHTHOUSES, _run_torchft(shape, next(iter(LIGHTHOUSES.values())), kill=False)[0]
        ),
    }
    return {
        arm: _summary([judge(attempts, killed, undisturbed[arm]) for attempts, killed in runs[arm]])
        for arm in arms
    }


def judge(attempts: Attempts, killed: float, undisturbed: Attempts) -> dict[str, Any]:
    """Return what a kill at this time did to the survivor, compared with a run without it."""
    expected = {line["step"]: line["loss"] for line in undisturbed if line["kept"]}
    kept = [line for line in attempts if line["kept"]]
    gaps = [(b["time"], b["time"] - a["time"]) for a, b in pairwise(kept)]
    before = [gap for at, gap in gaps if at < killed][-_RECENT:]
    after = [gap for at, gap in gaps if at >= killed]
    # Steps are longer with one group left; that is not a stall.
    usual = max(statistics.median(before), statistics.median(after[-_RECENT:]))
    late = [line for line in kept if line["time"] >= killed]
    return {
        "stall_s": max(after) - usual,
        "step_s": statistics.median(before),
        "discarded": len(attempts) - len(kept),
        "different_before": _different(kept, expected) - _different(late, expected),
        "different_after": _different(late, expected),
        "steps_after": len(late),
    }


def _different(kept: Attempts, expected: Mapping[int, float]) -> int:
    return sum(line["loss"] != expected[line["step"]] for line in kept)


def lines(found: Mapping[str, Any]) -> list[str]:
    """Return the lines of Markdown."""
    result = [
        f"One of two groups is killed, here and with {peers.versions('torchft')} (gloo), on a model of the same "
        "shape. torchft's README has a quorum tick of 100 ms, and its heartbeat timeout is 5 s; tuned are 10 ms "
        "and 0.5 s. The rounds alternate:",
        "",
        "| | kills | stall p50, s | longest, s | step before, ms | attempts discarded | losses that differ from "
        "an undisturbed run: before / after the kill |",
        "|---|---|---|---|---|---|---|",
    ]
    for arm, row in found.items():
        result.append(
            f"| {arm} | {row['kills']} | {row['stall_p50_s']:.3f} | {row['stall_max_s']:.3f} | "
            f"{1000 * row['step_s']:.1f} | {row['discarded']} | {row['different_before']} / "
            f"{row['different_after']} of {row['steps_after']} |"
        )
    return [
        *result,
        "",
        "torchft goes on without the samples of the killed group, in smaller batches; elastic groups use all "
        "samples of each step.",
    ]


def _summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    stalls = [row["stall_s"] for row in rows]
    totals = ("discarded", "different_before", "different_after", "steps_after")
    return {
        "kills": len(rows),
        "stall_p50_s": statistics.median(stalls),
        "stall_max_s": max(stalls),
        "step_s": statistics.median(row["step_s"] for row in rows),
        **{name: sum(row[name] for row in rows) for name in totals},
    }


def _run_torchft(
    shape: Mapping[str, int], lighthouse: Mapping[str, int], *, kill: bool
) -> tuple[Attempts, float]:
    request = {
        **shape,
        **lighthouse,
        "steps": 2 * _KILL_AFTER,
        "kill_after": _KILL_AFTER if kill else None,
    }
    found = peers.measure("bench.trainer.torchft_groups", request, _TIMEOUT_S)
    return found["attempts"], found["killed"]


def _kill_ours(run: GroupRun, victim: int) -> tuple[Attempts, float]:
    try:
        for count in (1, 2):
            run.start()
            _await_groups(run, count)
        run.reach(run.last_step() + _KILL_AFTER)
        pid = run.processes[victim].pid
        assert pid
        killed = time.time()
        os.kill(pid, signal.SIGKILL)
        _await_groups(run, 1)
        run.reach(run.last_step() + _KILL_AFTER)
        return _attempts(run), killed
    finally:
        run.kill()


def _await_groups(run: GroupRun, count: int) -> None:
    run.until(lambda: len(run.view()["members"]) == count, f"{count} groups")


def _run_undisturbed(run: GroupRun, last: int) -> Attempts:
    try:
        run.start()
        run.reach(last)
        return _attempts(run)
    finally:
        run.kill()


def _attempts(run: GroupRun) -> Attempts:
    """Return the steps, each after those that were taken in vain because a group was lost."""
    lost = Counter(
        event["step"] + 1
        for event in run.events()
        if event["event"] == "membership" and "lost" in event["reason"]
    )
    found: list[Mapping[str, Any]] = []
    for step in run.steps():
        made = {name: step[name] for name in ("step", "time", "loss")}
        found += [{**made, "kept": False}] * lost[step["step"]]
        found.append({**made, "kept": True})
    return found
