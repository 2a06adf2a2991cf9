"""Seeded changes of the membership of a real run, and what they did to it."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

from bench.trainer.elastic_groups import GroupRun

MOST_GROUPS: Final = 4
WORKERS: Final = 8
GLOBAL_SAMPLES: Final = 16
KINDS: Final = ("announced", "killed", "silent", "joined")
_SETTLE_STEPS: Final = 4
"""Undisturbed steps between two changes."""
CONFIG: Final = """
steps: 1000000
seed: {seed}
collective_timeout_s: 60
model: {{hidden_size: {hidden}, intermediate_size: {wide}, layers: 2, heads: 2, kv_heads: 1}}
data: {{path: {data}, sequence_length: {length}}}
batch: {{global_samples: {samples}, micro_samples: 2}}
schedule: {{kind: constant, warmup_steps: 3}}
evaluation: {{every_steps: 50, samples: 13}}
checkpoint: {{every_steps: 200, keep_latest: 2}}
groups: {{min: 1, max: {most}, workers: {workers}, silent_after_s: {silent_after_s}}}
"""


@dataclass
class Changes:
    """What a series of changes did."""

    stalls: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Seconds by kind: the longest time between two steps around a change, less the median step before or after
    it, whichever is longer."""
    steps: int = 0
    different_losses: int = 0
    missing_steps: list[str] = field(default_factory=list)
    step_s: float = 0.0
    """Median time between two steps."""
    seconds: float = 0.0
    """From the first step to the last."""
    time_ratio: float = 1.0
    """`seconds` over what as many steps would take with the same groups without changes."""
    false_losses: int = 0
    """Groups that were alive, counted as lost and joined again: the machine was too slow."""

    @property
    def count(self) -> int:
        """Changes in all."""
        return sum(len(found) for found in self.stalls.values())


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
        plan.append("joined" if up else chance.choice(KINDS[:3]))
        groups += 1 if up else -1
    return plan


def _trace_targets(traces: Sequence[Path], chance: random.Random) -> list[int]:
    """Return numbers of groups, one step apart, that follow the capacity of the traces."""
    found = [1]
    for file in chance.sample(list(traces), len(traces)):
        capacity = json.loads(file.read_text())["data"]
        most = max(capacity) or 1
        for value in capacity:
            target = max(1, round(MOST_GROUPS * value / most))
            while found[-1] != target:
                found.append(found[-1] + (1 if target > found[-1] else -1))
    return found[1:]


def play_changes(
    folder: Path,
    data: Path,
    plan: Sequence[str],
    seed: int,
    notify: Callable[[str, int, int], None],
) -> Changes:
    """Play changes on a real run, and compare it with an undisturbed run of one group."""
    with two_runs(folder, data, seed, most=MOST_GROUPS, silent_after_s=1.5) as (
        changed,
        undisturbed,
    ):
        moments = _Player(changed, random.Random(seed)).play(plan, notify)
        notify("undisturbed run", 0, 0)
        stop_at_the_same_step(changed, undisturbed)
        return _judge(changed, undisturbed, moments)


@contextmanager
def two_runs(
    folder: Path,
    data: Path,
    seed: int,
    *,
    most: int,
    silent_after_s: float,
    settings: Sequence[str] = (),
) -> Iterator[tuple[GroupRun, GroupRun]]:
    """Yield a run to disturb, which has these settings, and one to compare it with; end their processes."""
    folder.mkdir(exist_ok=True)
    config = CONFIG.format(
        seed=seed, data=data, hidden=32, wide=64, length=32, most=most, workers=WORKERS,
        silent_after_s=silent_after_s, samples=GLOBAL_SAMPLES,
    )  # fmt: skip
    runs = []
    for name, own in (("disturbed", list(settings)), ("undisturbed", [])):
        (folder / name).mkdir()
        (folder / name / "config.yaml").write_text(config)
        runs.append(GroupRun(folder / name, own))
    try:
        yield runs[0], runs[1]
    finally:
        for run in runs:
            run.kill()


def stop_at_the_same_step(disturbed: GroupRun, undisturbed: GroupRun) -> None:
    """Stop a run, and take one group of the other as far."""
    last = disturbed.stop()
    undisturbed.start()
    undisturbed.reach(last)
    undisturbed.stop()


@dataclass
class _Player:
    run: GroupRun
    chance: random.Random
    alive: list[BaseProcess] = field(default_factory=list)

    def play(
        self, plan: Sequence[str], notify: Callable[[str, int, int], None]
    ) -> list[tuple[str, float, float]]:
        """Return kind, beginning and end of each change, in Unix seconds."""
        self.alive.append(self.run.start())
        self.run.reach(_SETTLE_STEPS)
        moments = []
        for number, kind in enumerate(plan):
            notify("changes", len(plan), number)
            begun = time.time()
            self._change(kind)
            self._settled()
            moments.append((kind, begun, time.time()))
            self.run.reach(self.run.last_step() + _SETTLE_STEPS)
        return moments

    def _change(self, kind: str) -> None:
        if kind == "joined":
            self.alive.append(self.run.start())
            return
        victim = self.alive.pop(self.chance.randrange(len(self.alive)))
        number = {"announced": signal.SIGTERM, "killed": signal.SIGKILL, "silent": signal.SIGSTOP}[
            kind
        ]
        assert victim.pid
        before = self.run.view()["number"]
        os.kill(victim.pid, number)
        if kind == "silent":  # it is ended only once the others went on without it
            self.run.until(lambda: self.run.view()["number"] > before, "a view without it")
            os.kill(victim.pid, signal.SIGKILL)

    def _settled(self) -> None:
        """Wait until the groups that live, and no others, take steps together."""
        wanted = len(self.alive)
        self.run.until(lambda: len(self.run.view()["members"]) == wanted, f"{wanted} groups")
        number = self.run.view()["number"]
        self.run.until(
            lambda: any(e.get("view", 0) >= number for e in self.run.events()), "the event"
        )


def compare_runs(changed: GroupRun, undisturbed: GroupRun) -> tuple[int, list[str]]:
    """Return how many losses differ, and whether any step is missing."""
    steps, faults = changed.steps(), list[str]()
    expected = {line["step"]: line["loss"] for line in undisturbed.steps()}
    if [line["step"] for line in steps] != list(range(1, len(steps) + 1)):
        faults.append("metrics.jsonl does not have each step once")
    different = sum(line["loss"] != expected[line["step"]] for line in steps)
    return different, faults


def _judge(
    changed: GroupRun, undisturbed: GroupRun, moments: Sequence[tuple[str, float, float]]
) -> Changes:
    found = Changes()
    steps = changed.steps()
    found.steps = len(steps)
    found.different_losses, found.missing_steps = compare_runs(changed, undisturbed)
    gaps = [(b["time"], b["time"] - a["time"]) for a, b in pairwise(steps)]
    found.step_s = statistics.median(gap for _, gap in gaps)
    found.seconds = sum(gap for _, gap in gaps)
    views = [(e["step"], e["groups"]) for e in changed.events() if e["event"] == "membership"]
    by_step = [(line["step"], gap) for line, (_, gap) in zip(steps[1:], gaps, strict=True)]
    found.time_ratio = found.seconds / calm_seconds(by_step, views)
    nexts = [begun for _, begun, _ in moments[1:]] + [math.inf]
    for (kind, begun, ended), upcoming in zip(moments, nexts, strict=True):
        found.stalls[kind].append(stall_seconds(gaps, begun, ended, upcoming))
    changes = sum(event["event"] == "membership" for event in changed.events()) - 1
    found.false_losses = max(0, changes - len(moments)) // 2
    return found


def stall_seconds(
    gaps: Sequence[tuple[float, float]], begun: float, ended: float, upcoming: float
) -> float:
    """Return how long survivors waited for one change: its longest step, less a usual one.

    `gaps`: the time at which each step ended, and seconds since the step before it; `upcoming`: when the next
    change began, whose stall is its own.
    """
    grace = 10 * statistics.median(gap for _, gap in gaps)
    # Also the gap in which the change ended: on a busy machine no step may end soon after it.
    around = [gap for at, gap in gaps if begun < at < upcoming and at - gap < ended + grace]
    # A step takes longer with fewer groups: that is no stall.
    before = [gap for at, gap in gaps if at < begun][-20:]
    after = [gap for at, gap in gaps if ended < at < upcoming][:_SETTLE_STEPS]
    return max(around) - max(statistics.median(before), statistics.median(after or before))


def calm_seconds(gaps: Sequence[tuple[int, float]], views: Sequence[tuple[int, int]]) -> float:
    """Return what as many steps take without changes, with the same numbers of groups.

    `gaps`: step and its seconds; `views`: last step before a view and its number of groups. A step counts as long
    as the median one of its number of groups.
    """
    seconds: dict[int, list[float]] = defaultdict(list)
    for step, gap in gaps:
        number = next((count for at, count in reversed(views) if at < step), 1)
        seconds[number].append(gap)
    return sum(len(found) * statistics.median(found) for found in seconds.values())
