"""A recorded trace of spot capacity, executed on the real Kueue by `spot steer`."""

from __future__ import annotations

import datetime as dt
import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bench.spot import traces
from bench.spot.traces import Trace
from infra.addons.kueue import PRODUCTION_TIMEOUTS
from infra.observability import series
from ops.metrics import Sample
from ops.steer import memory, settings
from ops.steer.control import Controller
from sandbox import paths
from tests.sandbox import test_steering
from tests.sandbox.node_kit import until
from tests.sandbox.test_steering import BOUGHT, HOUR_S, RICH, SETTINGS, SPOT, Steered
from training.spot.steer import RESTART_S

pytestmark = [pytest.mark.sandbox, pytest.mark.full_only]

steered = test_steering.steered

FOLDER = "SPOT_TRACES"
"""Variable: folder of recorded traces; default: the made ones of bench/traces."""


def _recorded(chance: random.Random) -> list[Trace]:
    found = traces.load(Path(os.environ.get(FOLDER, paths.PROJECT / "bench/traces")))
    chance.shuffle(found)
    return found


def _changes_from(trace: Trace, first: int) -> list[tuple[float, bool]]:
    """When the gang's capacity goes and comes, in seconds from a tick."""
    there = next(iter(trace.zones.values()))
    return [
        ((tick - first) * float(trace.gap_s), there[tick])
        for tick in range(first + 1, len(there))
        if there[tick] is not there[tick - 1]
    ]


def _change(steered: Steered, run: str, there: bool, name: str) -> None:
    if there:
        for fresh in range(4):
            steered.give(f"{SPOT}-{name}-{fresh}")
    else:
        steered.take_pool(run, SPOT)


WORK_S = 10 * HOUR_S
SLACK_S = 1.5 * HOUR_S
"""To the deadline at the start. Two starts on spot that fail, one at a loss, leave less than a third one needs."""
EVERY_S = 600.0
"""Between two decisions."""
LONGEST_OUTAGE_S = 6 * HOUR_S
HELD_OFF_S = 4.25 * HOUR_S
"""From a loss of all nodes to the third try of spot: time-outs, and hold-offs of one and two hours."""


def _long_outage(chance: random.Random) -> tuple[str, list[tuple[float, bool]]]:
    """The name of a trace, and its changes from up to two hours before an outage in which spot is tried twice.

    Spot is there again when it would be tried for the third time.
    """
    for trace in _recorded(chance):
        changes = _changes_from(trace, 0)
        found = [
            (since, number)
            for number, (gone, _) in enumerate(changes)
            if 0 < number < len(changes) - 2 and not changes[number][1]
            for since, back, again in [
                (changes[n][0] for n in (number - 1, number + 1, number + 2))
            ]
            if gone - since >= HOUR_S / 2
            and 1.6 * SLACK_S <= back - gone <= LONGEST_OUTAGE_S
            and again >= gone + max(HELD_OFF_S, back - gone) + HOUR_S
        ]
        if found:
            since, number = chance.choice(found)
            gone = changes[number][0]
            begun = gone - chance.uniform(HOUR_S / 2, min(2 * HOUR_S, gone - since))
            return trace.name, [(at - begun, there) for at, there in changes[number:]]
    raise AssertionError("no trace has an outage that uses up the slack")


class Program:
    """A run's trainer as Prometheus knows it: it reports while it trains, a step a minute, and nothing else."""

    place = "the test"
    step_s = 60.0

    def __init__(self) -> None:
        self.run = ""
        self.done_s = 0.0
        self.starting_s = RESTART_S
        """Rest of a start: nodes, queue, image, load."""

    def start(self) -> None:
        """Start again, from what was saved at the notice."""
        self.starting_s = RESTART_S

    def train(self, seconds: float) -> None:
        starting = min(self.starting_s, seconds)
        self.starting_s -= starting
        self.done_s += seconds - starting

    @property
    def left_s(self) -> float:
        return WORK_S - self.done_s

    def query(self, asked: object) -> list[Sample]:
        expression = str(asked)
        known = {
            f"max by (run_id) ({series.STEP})": self.done_s // self.step_s,
            f"max by (run_id) ({series.PLANNED_STEPS})": WORK_S / self.step_s,
            f"max by (run_id) ({series.CHECKPOINT_WRITE_SECONDS})": 30.0,
        }
        found = 1 / self.step_s if "rate(" in expression else known.get(expression)
        if found is None or self.starting_s > 0:
            return []
        return [Sample(labels={"run_id": self.run}, value=found)]


@dataclass
class Paced(Steered):
    """A gang with a deadline. The clock is the test's; Kueue's time-outs take as long as on the platform."""

    program: Program = field(default_factory=Program)
    at: float = 0.0
    """Unix seconds."""
    deadline: float = 0.0
    run: str = ""
    timed_out: tuple[int, int] = (0, 0)
    """Time-outs in `at`: of starts, and of recoveries."""
    pods: frozenset[str] = frozenset()
    """UIDs of its pods when it ran last."""
    there: bool = True
    """Whether spot has capacity."""
    reasons: list[str] = field(default_factory=list)

    def look(self) -> None:
        found = memory.seen(self.workload(self.run), ())
        starts, recoveries = self.timed_out
        self.timed_out = found.starts, found.recoveries
        self.at += (found.starts - starts) * PRODUCTION_TIMEOUTS.start_seconds
        self.at += (found.recoveries - recoveries) * PRODUCTION_TIMEOUTS.recovery_seconds
        self.controller.step(self.program, self.at)  # type: ignore[arg-type]

    def settle(self) -> str:
        """Return the pool in which the gang runs after the decisions that are due now."""
        looks = 0

        def settled() -> tuple[str, frozenset[str]] | None:
            nonlocal looks
            pods = frozenset(str(p["metadata"]["uid"]) for p in self.fleet.pods(self.run))
            allowed, pool = self.allowed(self.run), self.pool(self.run)
            runs = pool and self.nodes(self.run) and (allowed is None or pool in allowed)
            looks = looks + 1 if runs else 0
            self.reasons.append(self.remembered(self.run).reason)
            return (pool, pods) if looks > 2 else None

        pool, pods = self.until(settled, "it runs where it may")
        if pods != self.pods:
            self.program.start()
        self.pods = pods
        return pool

    def walk(self, changes: list[tuple[float, bool]], begun: float, name: str) -> Iterator[str]:
        """Yield where the gang runs after each decision, until its work is done."""
        coming = [(begun + at, there) for at, there in changes]
        while True:
            yield self.settle()
            to = min([self.at + EVERY_S, *(at for at, _ in coming if at > self.at)])
            self.program.train(to - self.at)
            self.at = to
            if self.program.left_s <= 0:
                self.at += self.program.left_s
                return
            while coming and coming[0][0] <= self.at:
                at, self.there = coming.pop(0)
                _change(self, self.run, self.there, f"{name}-{at - begun:.0f}")

    def is_short_of_slack(self) -> bool:
        """Whether spot has capacity, and only its slack keeps the gang off it."""
        reason = self.remembered(self.run).reason
        return self.there and "of slack are below" in reason and SPOT not in reason


def _with_deadline(steered: Steered, name: str) -> Paced:
    """A gang of two that has just been queued, and knows its longest time but no progress."""
    # Losses keep no gang off spot here: its slack decides.
    rules = SETTINGS["rules"] | {"losses": 100}  # type: ignore[operator]
    said: list[str] = []
    controller = Controller(
        steered.api, settings.parse(SETTINGS | {"rules": rules}), said.append, every_s=EVERY_S
    )
    paced = Paced(steered.fleet, controller, steered.api, said)
    begun = time.time()
    paced.deadline = float(int(begun + WORK_S + SLACK_S))
    paced.run = paced.program.run = steered.fleet.start(
        RICH,
        name,
        [SPOT, BOUGHT],
        nodes=2,
        hold=False,
        keeps_running=True,
        max_hours=WORK_S / HOUR_S,
        deadline=dt.datetime.fromtimestamp(paced.deadline, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )
    paced.at = begun
    until(lambda: paced.run in paced.fleet.workloads(), "it has a Workload")
    return paced


def _renew_spot(steered: Steered, name: str) -> None:
    """Give the spot pool new nodes for those that earlier tests have left or taken."""
    _change(steered, "", False, name)
    _change(steered, "", True, name)


def _walked(steered: Steered, name: str) -> tuple[Paced, Iterator[str]]:
    """A gang with a deadline that starts before a long outage, and where it runs after each decision."""
    seed = random.randrange(10**6)
    trace, changes = _long_outage(random.Random(seed))
    print(f"seed {seed}: {trace}, {[(round(at / HOUR_S, 1), there) for at, there in changes[:3]]}")
    unique = f"{name}-{seed}"
    _renew_spot(steered, unique)
    paced = _with_deadline(steered, unique)
    return paced, paced.walk(changes, paced.at, unique)


def test_a_gang_whose_slack_an_outage_uses_up_stays_on_demand_and_is_not_late(
    steered: Steered,
) -> None:
    paced, walk = _walked(steered, "late")
    places, kept_off = list[str](), 0
    for pool in walk:
        places.append(pool)
        kept_off += paced.is_short_of_slack()
    moves = [pool for at, pool in enumerate(places) if at == 0 or places[at - 1] != pool]
    print(f"{moves}, {(paced.deadline - paced.at) / 60:.0f} min early: {paced.said}")
    assert moves == [SPOT, BOUGHT]
    assert kept_off, paced.reasons
    assert paced.at <= paced.deadline
    steered.fleet.stop_all()


def test_a_gang_that_gets_ahead_of_its_plan_returns_to_spot(steered: Steered) -> None:
    paced, walk = _walked(steered, "ahead")
    places = [next(walk)]
    while not paced.is_short_of_slack():
        places.append(next(walk))
    assert (places[0], places[-1]) == (SPOT, BOUGHT)
    assert next(walk) == BOUGHT, "the same progress, and it stays"
    paced.program.done_s += SLACK_S
    assert next(walk) == SPOT, paced.said
    assert [next(walk), next(walk)] == [SPOT, SPOT]
    assert paced.at + paced.program.left_s <= paced.deadline
    steered.fleet.stop_all()
