"""Preemption storm: low priority fills the fleet, high priority preempts it, and controllers are killed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Final

from bench import fleet, gangs, rounds
from bench.api import Api, run_parallel, wait_until
from bench.embedded import Embedded
from bench.gangs import Gang
from bench.observer import Observer
from bench.report import bullets
from bench.request import Notify, Request, Result
from infra.addons import kueue
from infra.domain.tier import RESEARCH

SIZES: dict[str, dict[str, Any]] = {
    "small": {"nodes": 24, "low": 20, "high": 20, "kills": 4, "kill_every_s": 2.0, "seconds": 2.0},
    "full": {
        "nodes": 200,
        "low": 500,
        "high": 500,
        "kills": 16,
        "kill_every_s": 10.0,
        "seconds": 15.0,
    },
}
KILLED: Final = ("kueue", "controller-manager", "scheduler", "jobset")
EVICTIONS_MAX: Final = 8
"""Of one gang. Preempted once by each wave it meets, and put back when a dead controller kept it from starting."""
LOW: Final = "low"
HIGH: Final = "high"
_LOW_PRIORITY: Final = "best-effort-training"
RESTART_S: Final = 20.0
"""Seconds from Kueue's first answer after a kill until it has certainly read all queues.

The scheduler of Kueue 0.19 starts while its ClusterQueues are still being read: its `Start` waits for nothing.
A queue that is read early may borrow from the cohort what gangs of a queue that is not read yet hold. Their pods
find no free node and wait; these admissions are counted separately from violations.
"""
FULL_FRACTION: Final = 0.5
"""Share of the fleet in use at which high priority gangs are submitted."""
STALL_S: Final = kueue.PRODUCTION_TIMEOUTS.start_seconds + rounds.STALL_S
"""A storm in which no gang finishes for so long has failed.

Kueue may admit a preempted gang again before the Job controller has seen it suspended. Its pods are then those of
the previous admission and fit on no node. They are replaced when Kueue evicts the gang for not starting.
"""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much of a storm it is."""

    nodes: int
    low: int
    high: int
    kills: int
    """How often a controller is killed, each in turn."""
    kill_every_s: float
    """Mean time between two kills."""
    seconds: float
    """How long a gang's pods run."""
    seed: int


@dataclass(frozen=True, kw_only=True)
class Kill:
    """A controller's death; `at`: seconds after the high priority came."""

    at: float
    service: str


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Results of the storm."""

    size: Size
    seconds: float
    finished: Counter[str]
    """Gangs that finished once and well, by priority."""
    evictions: Counter[str]
    """All, by reason."""
    evictions_of_high: Counter[str]
    most_evictions: int
    """Of one gang."""
    peak_part: float
    """GPUs in use at once, as a part of all."""
    kills: tuple[Kill, ...]
    over_after_restart: tuple[str, ...]
    """Admissions over quota from a kill of Kueue until RESTART_S after its next answer."""
    late_pods: int
    """See `Ledger.late_pods`."""
    violations: int
    messages: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Whether all assertions held."""
        size = self.size
        return (
            (self.finished[LOW], self.finished[HIGH]) == (size.low, size.high)
            and self.most_evictions <= EVICTIONS_MAX
            and not self.violations
        )


def plan_kills(size: Size) -> list[Kill]:
    """When which controller dies; the same for the same seed. Each is killed as often as the others."""
    dice = random.Random(size.seed)
    order: list[str] = []
    while len(order) < size.kills:
        order += dice.sample(KILLED, len(KILLED))
    at, kills = 0.0, []
    for service in order[: size.kills]:
        at += dice.uniform(0.5, 1.5) * size.kill_every_s
        kills.append(Kill(at=round(at, 1), service=service))
    return kills


def storm_load(size: Size, fitting: tuple[int, ...]) -> tuple[list[Gang], list[Gang]]:
    """The low and the high gangs.

    Only research may have the lowest class. The high ones are of all teams, at their teams' own class:
    they preempt in their own queue and take back what others have borrowed.
    """
    research = [team for team, tier in fleet.TEAMS if tier == RESEARCH.name]
    low = [
        replace(
            gang,
            team=research[index % len(research)],
            seconds=size.seconds,
            priority=_LOW_PRIORITY,
        )
        for index, gang in enumerate(gangs.generate_gangs(size.low, size.seed, LOW, fitting))
    ]
    high = [
        replace(gang, seconds=size.seconds)
        for gang in gangs.generate_gangs(size.high, size.seed + 1, HIGH, fitting)
    ]
    return low, high


def run(request: Request) -> Result:
    """Let the storm pass over a cluster of its own."""
    size = Size(**request.sizes, seed=request.seed)
    with request.cluster() as cluster:
        outcome = measure(cluster, size, request.notify)
    return Result(text=section(outcome), good=outcome.good, versions="cluster")


def measure(cluster: Embedded, size: Size, notify: Notify) -> Outcome:
    """Let the storm pass over a cluster that nothing else uses."""
    api = Api(cluster.kubeconfig)
    made = fleet.render_fleet(size.nodes)
    arm = fleet.trainyard_arm(made, fleet.with_production_settings(cluster.kueue_configuration()))
    notify(f"creating {size.nodes} nodes", 0, 0)
    rounds.install_fleet(api, made, ())
    rounds.switch_arm(api, cluster, arm, ())
    low, high = storm_load(size, gangs.fitting_sizes(made.platform))
    kills = plan_kills(size)
    observer = Observer(api, made.gpus)
    observer.start()
    try:
        rounds.release_queues(api, arm)
        notify("low priority comes", len(low), 0)
        run_parallel(
            lambda gang: api.create(gangs.render_gang(gang, made.platform)), low, lambda: None
        )
        enough = FULL_FRACTION * sum(made.gpus.values())
        wait_until(lambda: observer.in_use() >= enough, "the fleet fills", rounds.SETTLE_S)
        start = monotonic()
        storm = _Killer(
            cluster, observer, kills, start, lambda done: notify("storm", len(low + high), done)
        )
        run_parallel(
            lambda gang: api.create(gangs.render_gang(gang, made.platform)), high, storm.due
        )
        rounds.wait_finished(observer, len(low) + len(high), storm.finished, STALL_S)
        seconds = monotonic() - start
        observer.catch_up(rounds.CATCH_UP_S)
    finally:
        observer.stop()
    return _outcome(size, observer, seconds, tuple(storm.done))


class _Killer:
    """Kills the controllers that are due at each call."""

    def __init__(
        self,
        cluster: Embedded,
        observer: Observer,
        kills: list[Kill],
        start: float,
        notify: Callable[[int], None],
    ) -> None:
        self._cluster = cluster
        self._observer = observer
        self._left = list(kills)
        self._start = start
        self._notify = notify
        self._kueue_is_away = False
        self.done: list[Kill] = []

    def due(self) -> None:
        """Kill what should be dead by now; one that has not come back yet waits for its turn."""
        self._follow_kueue()
        while self._left and (at := monotonic() - self._start) >= self._left[0].at:
            if not self._cluster.kill(self._left[0].service):
                return
            if self._left[0].service == "kueue":
                self._kueue_is_away = True
                self._follow_kueue()
            self.done.append(replace(self._left.pop(0), at=round(at, 1)))

    def _follow_kueue(self) -> None:
        """Extend the end of its restart while it does not answer."""
        if self._kueue_is_away:
            self._observer.restarting(monotonic() + RESTART_S)
            self._kueue_is_away = not self._cluster.answers("kueue")

    def finished(self, gangs_finished: int) -> None:
        """Report the number of finished gangs, and kill what is due."""
        self.due()
        self._notify(gangs_finished)


def _outcome(size: Size, observer: Observer, seconds: float, kills: tuple[Kill, ...]) -> Outcome:
    with observer.lock:
        checker = observer.checker
        checker.close()
        finished: Counter[str] = Counter()
        evictions: Counter[str] = Counter()
        of_high: Counter[str] = Counter()
        for (_, name), gang in checker.gangs.items():
            priority = LOW if name.startswith(LOW) else HIGH
            finished[priority] += gang.times_finished == 1 and gang.succeeded
            evictions += gang.evictions
            of_high += gang.evictions if priority == HIGH else Counter()
        return Outcome(
            size=size,
            seconds=seconds,
            finished=finished,
            evictions=evictions,
            evictions_of_high=of_high,
            most_evictions=max(g.evictions.total() for g in checker.gangs.values()),
            peak_part=checker.peak_total / sum(checker.gpus.values()),
            kills=kills,
            over_after_restart=tuple(checker.over_after_restart),
            late_pods=checker.late_pods,
            violations=checker.violations,
            messages=tuple(checker.messages),
        )


OVER_SHOWN: Final = 3
"""Admissions over quota that the section lists: each names every run of the flavor."""


def section(outcome: Outcome) -> str:
    """Return the section of a preemption storm."""
    size = outcome.size
    kills = ", ".join(f"{k.service} at {k.at:g} s" for k in outcome.kills) or "none"
    reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(outcome.evictions.items()))
    lines = [
        f"{size.nodes} nodes; {size.low} gangs of low priority, then {size.high} of high (seed"
        f" {size.seed}).",
        "",
        "| quantity | measured | required |",
        "|---|---|---|",
        f"| low-priority gangs finished once | {outcome.finished[LOW]} | {size.low} |",
        f"| high-priority gangs finished once | {outcome.finished[HIGH]} | {size.high} |",
        f"| most evictions of one gang | {outcome.most_evictions} | at most {EVICTIONS_MAX} |",
        f"| violations (quota exceeded, partial gangs) | {outcome.violations} | 0 |",
        f"| pods bound just after the eviction of their gang | {outcome.late_pods} |"
        " unbounded: the Job controller deletes them |",
        f"| admitted over quota within {RESTART_S:.0f} s after a restart of Kueue |"
        f" {len(outcome.over_after_restart)} | unbounded: Kueue admits while it still loads its queues |",
        f"| most GPUs admitted at once | {outcome.peak_part:.0%} | at most 100%, those aside |",
        f"| controllers killed | {len(outcome.kills)} | {size.kills} |",
        "",
        f"{outcome.seconds:.0f} s from the first high-priority gang to the last completion. Evictions:"
        f" {reasons or 'none'}; of high-priority gangs: {outcome.evictions_of_high.total()}. Killed: {kills}.",
        *bullets("First violations:", outcome.messages),
        *bullets(
            "First admitted over quota after a restart of Kueue:",
            outcome.over_after_restart[:OVER_SHOWN],
        ),
    ]
    return "\n".join(lines)
