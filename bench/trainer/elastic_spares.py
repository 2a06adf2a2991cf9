"""Losses of members of an elastic run while spares are ready: from the kill to the next committed step."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.trainer.elastic_changes import compare_runs, stop_at_the_same_step, two_runs
from bench.trainer.elastic_groups import GroupRun
from training.trainer.config.groups import GroupsConfig

KINDS: Final = ("killed", "two killed at once", "silent")
GOAL_S: Final = 3.0
MEMBERS: Final = 3
SPARES: Final = 2
_SETTLE_STEPS: Final = 5
"""Undisturbed steps before each loss: all members must know which spares are ready."""
_TAIL_BYTES: Final = 1 << 16
"""More than all groups observe in a few steps."""


@dataclass
class Losses:
    """What a series of losses did."""

    stalls: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """By kind, seconds from the kill to the first step that groups without the lost ones have committed."""
    not_replaced: int = 0
    """Losses after which that step was taken by fewer groups than before."""
    different_losses: int = 0
    sample_faults: list[str] = field(default_factory=list)


def plan_losses(count: int, seed: int) -> list[str]:
    """Return as many kinds of losses, each equally often, in random order."""
    plan = [KINDS[number % len(KINDS)] for number in range(count)]
    random.Random(seed).shuffle(plan)
    return plan


def play_losses(
    folder: Path, data: Path, count: int, seed: int, notify: Callable[[str, int, int], None]
) -> Losses:
    """Play losses on a real run, each with enough spares, and compare it with an undisturbed run of one group.

    Groups count as silent after the default of `groups.silent_after_s`.
    """
    silent_after_s, spares = GroupsConfig.silent_after_s, [f"groups.spares={SPARES}"]
    with two_runs(
        folder, data, seed, most=MEMBERS, silent_after_s=silent_after_s, settings=spares
    ) as (lossy, undisturbed):
        moments = list(_play(lossy, plan_losses(count, seed), random.Random(seed), notify))
        stop_at_the_same_step(lossy, undisturbed)
        found = judge(lossy.steps(), lossy.events(), moments)
        found.different_losses, found.sample_faults = compare_runs(lossy, undisturbed)
        return found


def _play(
    run: GroupRun,
    plan: Sequence[str],
    chance: random.Random,
    notify: Callable[[str, int, int], None],
) -> Iterator[tuple[str, float, int]]:
    """Yield kind, Unix seconds and the view before each loss."""
    for number in range(1, MEMBERS + 1):
        run.start()
        _await_groups(run, number)
    lost = SPARES
    for number, kind in enumerate(plan):
        for _ in range(lost):
            _add_spare(run)
        run.reach(run.last_step() + _SETTLE_STEPS)
        notify("losses with spares", len(plan), number)
        lost = 2 if kind == "two killed at once" else 1
        victims, before = chance.sample(_members(run), lost), run.view()["number"]
        begun = time.time()
        for victim in victims:
            os.kill(victim, signal.SIGSTOP if kind == "silent" else signal.SIGKILL)
        _await_view_after(run, before)
        if kind == "silent":
            os.kill(victims[0], signal.SIGKILL)
        _members(run)
        yield kind, begun, before
    run.reach(run.last_step() + _SETTLE_STEPS)


def _await_groups(run: GroupRun, count: int) -> None:
    run.until(lambda: len(run.view()["members"]) == count, f"{count} groups")


def _await_view_after(run: GroupRun, number: int) -> None:
    run.until(lambda: run.view()["number"] > number, "a view without the lost groups")


def _add_spare(run: GroupRun) -> None:
    """Start one more group; return once it follows the steps of the others."""
    pid = run.start().pid

    def follows() -> bool:
        applied = (o for o in _observed(run) if o[:2] == (pid, "applied"))
        return max((step for _, _, step, _ in applied), default=0) >= run.last_step() - 1 > 0

    run.until(follows, "the spare to follow")


def _members(run: GroupRun) -> list[int]:
    """Wait until as many groups as wanted take steps in the newest view; return their process ids."""

    def found() -> list[int]:
        view = run.view()["number"]
        summed = {o[0] for o in _observed(run) if o[1] == "summed" and o[3] == view}
        recorded = any(event.get("view") == view for event in run.events())
        return sorted(summed) if recorded and len(summed) == MEMBERS else []

    members: list[int] = run.until(found, f"{MEMBERS} groups that take steps")
    return members


def _observed(run: GroupRun) -> list[tuple[int, str, int, int]]:
    """Return process id, event, step and view of what groups have observed last."""
    with run.observed.open("rb") as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - _TAIL_BYTES))
        lines = stream.read().decode().split("\n")[1:-1]
    found = (line.split() for line in lines)
    return [(int(pid), event, int(step), int(view)) for pid, _, event, step, view, *_ in found]


def judge(
    steps: Sequence[dict[str, Any]],
    events: Sequence[dict[str, Any]],
    moments: Sequence[tuple[str, float, int]],
) -> Losses:
    """Return the stalls. `moments`: kind, Unix seconds and the view before each loss."""
    ended = {line["step"]: float(line["time"]) for line in steps}
    views = [event for event in events if event["event"] == "membership"]
    found = Losses()
    for kind, begun, before in moments:
        after = next(event for event in views if event["view"] > before)
        found.stalls[kind].append(ended[after["at_step"] + 1] - begun)
        found.not_replaced += after["groups"] < MEMBERS
    return found
