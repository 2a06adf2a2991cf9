"""P9: gangs admitted per second with the platform's queues and policies, compared with a minimal setup."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from bench import fleet, gangs, rounds, workloads
from bench.api import Api, Json
from bench.embedded import Embedded
from bench.fleet import Arm, Fleet
from bench.report import bullets
from bench.request import Notify, Request, Result
from bench.rounds import RoundResult
from bench.statistics import median_and_bound

SIZES: dict[str, dict[str, Any]] = {
    "small": {"nodes": 40, "workloads": 40, "pairs": 1},
    "full": {"nodes": 1000, "workloads": 1000, "pairs": 10},
}
GOAL: Final = 0.95
"""Minimum ratio of the platform's admission rate to the minimal configuration's (P9)."""

WRITES_GOAL: Final = 1.1
"""Most writes to the API per gang, as a multiple of the minimal configuration's."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """Size of the benchmark."""

    nodes: int
    workloads: int
    """Gangs per round: queued first, then released at once."""
    pairs: int
    """Rounds of each configuration, in alternating order."""
    seed: int
    pods: bool = True
    """Whether gangs are Jobs and JobSets with pods, or only Workloads."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """All rounds, in order of execution."""

    size: Size
    rounds: tuple[RoundResult, ...]

    def rounds_of(self, arm: str) -> list[RoundResult]:
        """Return the rounds of one configuration."""
        return [r for r in self.rounds if r.arm == arm]

    @property
    def ratios(self) -> list[float]:
        """Ratios of admission rates, platform to minimal, by pair."""
        pairs = zip(
            self.rounds_of(fleet.TRAINYARD_ARM), self.rounds_of(fleet.MINIMAL_ARM), strict=True
        )
        return [ours.admitted_per_s / least.admitted_per_s for ours, least in pairs]

    @property
    def writes_ratio(self) -> float:
        """Writes to the API per gang, platform to minimal; medians over all rounds."""
        ours, least = (
            statistics.median(r.writes_per_gang for r in self.rounds_of(arm))
            for arm in (fleet.TRAINYARD_ARM, fleet.MINIMAL_ARM)
        )
        return ours / least

    @property
    def violations(self) -> int:
        """Violations in all rounds."""
        return sum(r.violations for r in self.rounds)


def run(request: Request) -> Result:
    """Compare gangs of Jobs and JobSets with pods."""
    return compare(request, pods=True)


def compare(request: Request, *, pods: bool) -> Result:
    """Compare on a cluster of its own; good without violations."""
    size = Size(**request.sizes, seed=request.seed, pods=pods)
    with request.cluster() as cluster:
        outcome = measure(cluster, size, request.notify)
    return Result(text=section(outcome), good=not outcome.violations, versions="cluster")


def measure(cluster: Embedded, size: Size, notify: Notify) -> Outcome:
    """Run all rounds on a cluster that nothing else uses."""
    api = connect(cluster, size)
    notify("rendering the fleet", 0, 0)
    made = fleet.render_fleet(size.nodes)
    kueue = fleet.with_production_settings(cluster.kueue_configuration())
    ours, least = fleet.trainyard_arm(made, kueue), fleet.minimal_arm(made, kueue)
    notify(f"creating {size.nodes} nodes", 0, 0)
    rounds.install_fleet(api, made, fleet.minimal_namespace())
    if not size.pods:
        cluster.without_pods()
    results: list[RoundResult] = []
    last: Sequence[Arm] = ()
    for number, arm in enumerate(arm_order(ours, least, size.pairs)):
        pair = number // 2
        title = f"pair {pair + 1} of {size.pairs}, {arm.name}"
        notify(f"{title}: queueing", size.workloads, 0)
        rounds.delete_load(api)
        rounds.switch_arm(api, cluster, arm, [other for other in last if other is not arm])
        last = (arm,)
        report_finished = partial(notify, title, size.workloads)
        gangs_of_pair = load(made, arm, size, pair)
        results.append(
            run_round(api, made, arm, gangs_of_pair, report_finished, with_pods=size.pods)
        )
    return Outcome(size=size, rounds=tuple(results))


def connect(cluster: Embedded, size: Size) -> Api:
    """Return the client that writes the gangs: as Kueue where they are Workloads."""
    user = {} if size.pods else {"user": workloads.KUEUE_USER, "group": workloads.KUEUE_GROUP}
    return Api(cluster.kubeconfig, **user)


def run_round(
    api: Api,
    made: Fleet,
    arm: Arm,
    gangs: Sequence[Json],
    notify: rounds.Progress,
    *,
    with_pods: bool = True,
) -> RoundResult:
    """Run one round of a configuration that is already active."""
    whole = {fleet.MINIMAL: sum(made.gpus.values())}
    gpus = whole if arm.name == fleet.MINIMAL_ARM else made.gpus
    return rounds.run_round(api, arm, gangs, gpus, notify, with_pods=with_pods)


def arm_order(ours: Arm, least: Arm, pairs: int) -> list[Arm]:
    """Return A B, B A, A B ..., so that drift over time affects both equally."""
    turns = itertools.cycle([(ours, least), (least, ours)])
    return [arm for _, pair in zip(range(pairs), turns, strict=False) for arm in pair]


def load(made: Fleet, arm: Arm, size: Size, pair: int) -> list[Json]:
    """Return the gangs of a pair, equal for both of its rounds."""
    fitting = gangs.fitting_sizes(made.platform)
    found = gangs.generate_gangs(size.workloads, size.seed + pair, f"p{pair}", fitting)
    manifests = [gangs.render_gang(gang, made.platform) for gang in found]
    if arm.name == fleet.MINIMAL_ARM:
        manifests = [gangs.for_minimal(m) for m in manifests]
    if size.pods:
        return manifests
    return [workloads.render_workload(m, made.priorities) for m in manifests]


def section(outcome: Outcome) -> str:
    """Return the section of an admission benchmark."""
    size = outcome.size
    middle, low, high = median_and_bound(outcome.ratios)
    lines = [
        f"{size.nodes} nodes; {size.workloads} gangs{'' if size.pods else ', as Workloads without pods,'}"
        f" queued, then released at once, in each of {2 * size.pairs} rounds (seed {size.seed}).",
        "",
        "| configuration | admitted/s, median (range) | finished/s, median | API writes per gang"
        " | evictions | late pods | violations |",
        "|---|---|---|---|---|---|---|",
    ]
    for arm in (fleet.TRAINYARD_ARM, fleet.MINIMAL_ARM):
        rounds = outcome.rounds_of(arm)
        speeds = [r.admitted_per_s for r in rounds]
        lines.append(
            f"| {arm} | {statistics.median(speeds):.2f} ({min(speeds):.2f} to {max(speeds):.2f})"
            f" | {statistics.median(r.finished_per_s for r in rounds):.2f}"
            f" | {statistics.median(r.writes_per_gang for r in rounds):.1f}"
            f" | {sum(r.evictions for r in rounds)} | {sum(r.late_pods for r in rounds)}"
            f" | {sum(r.violations for r in rounds)} |"
        )
    met = "met" if middle >= GOAL else "not met"
    lines += [
        "",
        f"Ratio ours / minimal: **{middle:.3f}** ({low:.3f} to {high:.3f}, {size.pairs} pairs);"
        f" the goal of {GOAL} is {met}. API writes per gang: **{outcome.writes_ratio:.2f}** times minimal's;"
        f" the goal of at most {WRITES_GOAL} is {'met' if outcome.writes_ratio <= WRITES_GOAL else 'not met'}.",
        "",
        *_waits(outcome),
        "",
        *_writes(outcome),
        *bullets("First violations:", [line for r in outcome.rounds for line in r.messages]),
    ]
    return "\n".join(lines)


def _waits(outcome: Outcome) -> list[str]:
    """Return a table of when parts of the gangs were admitted: the last ones may wait for others to end."""
    parts = {"half of the gangs": 0.5, "nine tenths": 0.9, "all": 1.0}

    def after(arm: str, part: float) -> float:
        rounds = [r.admitted_after_s for r in outcome.rounds_of(arm)]
        return statistics.median(times[math.ceil(part * len(times)) - 1] for times in rounds)

    rows = (
        f"| {name} | {after(fleet.TRAINYARD_ARM, part):.1f} s | {after(fleet.MINIMAL_ARM, part):.1f} s |"
        for name, part in parts.items()
    )
    return [
        f"| admitted after | {fleet.TRAINYARD_ARM} | {fleet.MINIMAL_ARM} |",
        "|---|---|---|",
        *rows,
    ]


def _writes(outcome: Outcome) -> list[str]:
    """Return a table of the writes by resource; medians over the rounds."""
    arms = (fleet.TRAINYARD_ARM, fleet.MINIMAL_ARM)

    def written(arm: str, name: str) -> float:
        return statistics.median(r.writes.get(name, 0.0) for r in outcome.rounds_of(arm))

    return [
        f"| writes per gang to | {' | '.join(arms)} |",
        "|---|---|---|",
        *(
            f"| `{name}` | {written(arms[0], name):.3f} | {written(arms[1], name):.3f} |"
            for name in sorted({name for r in outcome.rounds for name in r.writes})
        ),
    ]
