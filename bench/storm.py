"""A storm of preemptions: low priority fills the fleet, high priority comes, and controllers die meanwhile."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic
from typing import Final

from bench import fleet, gangs, rounds
from bench.api import Api, each, until
from bench.embedded import Embedded
from bench.gangs import Gang
from bench.observer import Observer
from infra.domain.tier import RESEARCH

KILLED: Final = ("kueue", "controller-manager", "scheduler", "jobset")
MOST_EVICTIONS: Final = 8
"""Of one gang. Preempted once by each wave it meets, and put back when a dead controller kept it from starting."""
LOW: Final = "low"
HIGH: Final = "high"
_LOW_PRIORITY: Final = "best-effort-training"
RESTART_S: Final = 20.0
"""From when Kueue answers again after a death until it surely knows all of its queues.

The scheduler of Kueue 0.15 starts while its ClusterQueues are still being read: its `Start` waits for nothing.
A queue that is read early may borrow from the cohort what gangs of a queue that is not read yet hold. Their pods
find no free node and wait; they are told apart from what must never happen.
"""
FULL_PART: Final = 0.5
"""The high priority comes when so much of the fleet is taken."""

Progress = Callable[[str, int, int], None]


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
    """What the storm left."""

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
    """Admissions over quota from a death of Kueue until RESTART_S after it answered again."""
    late_pods: int
    """See `Ledger.late_pods`."""
    violations: int
    told: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Whether all that must hold held."""
        size = self.size
        return (
            (self.finished[LOW], self.finished[HIGH]) == (size.low, size.high)
            and self.most_evictions <= MOST_EVICTIONS
            and not self.violations
        )


def plan(size: Size) -> list[Kill]:
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


def load(size: Size, fitting: tuple[int, ...]) -> tuple[list[Gang], list[Gang]]:
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
        for index, gang in enumerate(gangs.gangs(size.low, size.seed, LOW, fitting))
    ]
    high = [
        replace(gang, seconds=size.seconds)
        for gang in gangs.gangs(size.high, size.seed + 1, HIGH, fitting)
    ]
    return low, high


def run(cluster: Embedded, size: Size, told: Progress) -> Outcome:
    """Let the storm pass over a cluster that nothing else uses."""
    api = Api(cluster.kubeconfig)
    made = fleet.fleet(size.nodes)
    arm = fleet.our_arm(made, fleet.as_on_machines(cluster.kueue_configuration()))
    told(f"creating {size.nodes} nodes", 0, 0)
    rounds.install(api, made, ())
    rounds.switch(api, cluster, arm, ())
    low, high = load(size, gangs.sizes(made.platform))
    kills = plan(size)
    observer = Observer(api, made.gpus)
    observer.start()
    try:
        rounds.release(api, arm)
        told("low priority comes", len(low), 0)
        each(lambda gang: api.create(gangs.manifest(gang, made.platform)), low, lambda: None)
        enough = FULL_PART * sum(made.gpus.values())
        until(lambda: observer.in_use() >= enough, "the fleet fills", rounds.SETTLE_S)
        start = monotonic()
        storm = _Storm(
            cluster, observer, kills, start, lambda done: told("storm", len(low + high), done)
        )
        each(lambda gang: api.create(gangs.manifest(gang, made.platform)), high, storm.due)
        rounds.wait_finished(observer, len(low) + len(high), storm.finished)
        seconds = monotonic() - start
        observer.catch_up(rounds.CATCH_UP_S)
    finally:
        observer.stop()
    return _outcome(size, observer, seconds, tuple(storm.done))


class _Storm:
    """Kills what is due whenever it is asked."""

    def __init__(
        self,
        cluster: Embedded,
        observer: Observer,
        kills: list[Kill],
        start: float,
        told: Callable[[int], None],
    ) -> None:
        self._cluster = cluster
        self._observer = observer
        self._left = list(kills)
        self._start = start
        self._told = told
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
        """Move the end of its restart on for as long as it does not answer."""
        if self._kueue_is_away:
            self._observer.restarting(monotonic() + RESTART_S)
            self._kueue_is_away = not self._cluster.answers("kueue")

    def finished(self, gangs_finished: int) -> None:
        """Told how many gangs have finished."""
        self.due()
        self._told(gangs_finished)


def _outcome(size: Size, observer: Observer, seconds: float, kills: tuple[Kill, ...]) -> Outcome:
    with observer.lock:
        ledger = observer.ledger
        ledger.close()
        finished: Counter[str] = Counter()
        evictions: Counter[str] = Counter()
        of_high: Counter[str] = Counter()
        for (_, name), gang in ledger.gangs.items():
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
            most_evictions=max(g.evictions.total() for g in ledger.gangs.values()),
            peak_part=ledger.peak_total / sum(ledger.gpus.values()),
            kills=kills,
            over_after_restart=tuple(ledger.over_after_restart),
            late_pods=ledger.late_pods,
            violations=ledger.violations,
            told=tuple(ledger.told),
        )
