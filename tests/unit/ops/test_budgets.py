"""Budgets: nothing is stopped early, overspending is bounded, and a restarted controller continues."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest

from infra.config import parse, stack_values
from ops.budgets import control
from ops.budgets.command import Controller, readings_of
from ops.budgets.control import OVERRIDE, STATE, State
from ops.budgets.decision import CONFIRM_S, Budget, Level, Override, Reading, decide
from ops.cluster import Kind
from ops.ledger import clock
from ops.ledger.accounting import account
from ops.ledger.model import Fact, Hold, Node, Wait
from ops.ledger.record import Record
from ops.objects import Json
from tests.unit.infra.config_issues import issues
from tests.unit.ops.run_fixtures import cluster_queue, workload
from tests.unit.ops.test_ledger import ROOT

MONTH_S = 30 * 86_400.0
BUDGET = Budget(team="a", usd_per_month=1000.0, action=Level.DRAIN)


def reading(usd: float, at: float = 0.0, rate: float = 3600.0, **changes: Any) -> Reading:
    base = Reading(at=at, usd=usd, gpu_hours=0.0, usd_per_hour=rate, gpus=0.0)
    return dataclasses.replace(base, **changes)


def level(*readings: Reading, current: Level = Level.NONE, budget: Budget = BUDGET) -> Level:
    return decide(budget, readings, current).level


def test_levels_follow_the_used_part() -> None:
    assert level(reading(100)) is Level.NONE
    assert level(reading(800)) is Level.WARN
    both = (reading(1001), reading(1003, at=2))
    assert level(*both) is Level.DRAIN
    assert level(*both, budget=dataclasses.replace(BUDGET, action=Level.HOLD)) is Level.HOLD
    assert level(*both, budget=dataclasses.replace(BUDGET, action=Level.WARN)) is Level.WARN


def test_gpu_hours_are_a_limit_of_their_own() -> None:
    budget = Budget(team="a", gpu_hours_per_month=10, action=Level.HOLD)
    both = (reading(0, gpu_hours=10, gpus=8.0), reading(0, at=2, gpu_hours=10.004, gpus=8.0))
    assert level(*both, budget=budget) is Level.HOLD


@pytest.mark.parametrize(
    "readings",
    [
        (reading(2000),),
        (reading(100), reading(2000, at=60)),
        (reading(2000, complete=False), reading(2001, at=2)),
        (reading(2000), reading(2001, at=2, complete=False)),
        (reading(1001), reading(9000, at=2)),
        (reading(2000), reading(1500, at=2)),
    ],
    ids=["one", "jump", "incomplete before", "incomplete now", "implausible", "falls"],
)
def test_a_wrong_reading_stops_nothing(readings: tuple[Reading, ...]) -> None:
    decision = decide(BUDGET, readings, Level.NONE)
    assert decision.level < Level.HOLD and decision.look_again_s == CONFIRM_S


def test_a_wrong_reading_releases_nothing() -> None:
    assert level(reading(1001), reading(5, at=2), current=Level.DRAIN) is Level.DRAIN
    assert level(reading(5), current=Level.HOLD) is Level.HOLD
    assert level(reading(5), reading(6, at=2), current=Level.HOLD) is Level.NONE


def test_an_override_holds_until_it_expires() -> None:
    granted = Override(until=100.0, by="ada", reason="deadline")
    both = [reading(1001, at=90), reading(1003, at=92)]
    found = decide(BUDGET, both, Level.DRAIN, granted)
    assert (found.level, found.reason) == (Level.NONE, "overridden by ada: deadline")
    assert found.look_again_s <= 8
    late = [reading(1001, at=100), reading(1003, at=102)]
    assert decide(BUDGET, late, Level.NONE, granted).level is Level.DRAIN


def spend_a_month(seed: int, every_s: float) -> tuple[float, float, float, float]:
    """Let a team spend; return the spending when it was stopped, at the end, and the costs of save and delay."""
    chance = random.Random(seed)
    budget = dataclasses.replace(BUDGET, usd_per_month=chance.uniform(5_000, 60_000))
    node_usd, save_s, now, usd = 22.0, chance.uniform(10, 110), 0.0, 0.0
    nodes, current, kept = 8, Level.NONE, list[Reading]()
    stopped_at, highest = -1.0, 0.0
    while now < MONTH_S:
        wrong = chance.random() < 0.1
        right = reading(usd, at=now, rate=nodes * node_usd)
        shown = (
            chance.choice(
                [
                    dataclasses.replace(right, usd=usd * chance.uniform(1.1, 40)),
                    dataclasses.replace(right, usd=0.0),
                    dataclasses.replace(right, complete=False, usd=usd * 3),
                ]
            )
            if wrong
            else right
        )
        kept = [*kept, shown][-2:]
        if chance.random() < 0.05:
            kept = kept[-1:]  # the controller was started again
        found = decide(budget, kept, current)
        if found.level is Level.DRAIN and current is not Level.DRAIN:
            stopped_at = usd
            usd += nodes * node_usd * save_s / 3600
            nodes, highest = 0, max(highest, nodes * node_usd)
        current = found.level
        wait = max(1.0, min(every_s, found.look_again_s * 0.5))
        usd += nodes * node_usd * wait / 3600
        highest = max(highest, nodes * node_usd)
        now += wait
        if nodes and chance.random() < 0.01:
            nodes = chance.randint(1, 32)
    assert budget.usd_per_month
    return stopped_at, usd, budget.usd_per_month, highest * (save_s + 30) / 3600


def test_overspending_is_at_most_a_save_and_nothing_stops_early(
    request: pytest.FixtureRequest,
) -> None:
    stops = 0
    for seed in range(100 if request.config.getoption("--full") else 6):
        stopped_at, spent, limit, allowed = spend_a_month(seed, 300.0)
        if stopped_at >= 0:
            stops += 1
            assert stopped_at >= limit, f"seed {seed}"
        assert spent <= limit + allowed, f"seed {seed}"
    assert stops > 2


def test_readings_count_what_a_team_holds() -> None:
    node = Node(uid="n", pool="p", start=0, usd_per_hour=36.0, gpus=8.0)
    hold = Hold(uid="p", node="n", run="r", team="a", start=1000, share=0.5)
    wait = Wait(run="s", team="b", start=0)
    facts: list[Fact] = [node, hold, wait]
    found = readings_of(facts, account(facts, 0, 4600), ["a", "b"], 4600, complete=True)
    assert found["a"] == Reading(at=4600, usd=18.0, gpu_hours=4.0, usd_per_hour=18.0, gpus=4.0)
    assert found["b"] == Reading(at=4600, usd=0.0, gpu_hours=0.0, usd_per_hour=0.0, gpus=0.0)


class Api:
    """One ClusterQueue and some Workloads that remember what was patched."""

    def __init__(self) -> None:
        self.queue = cluster_queue("a")
        self.queue["metadata"]["annotations"] = {}
        self.workloads = dict.fromkeys(("team-a/one", "team-a/two"), True)
        self.fail_after = -1

    def get(self, _: Kind, name: str, namespace: str) -> dict[str, Any] | None:
        return {} if f"{namespace}/{name}" in self.workloads else None

    def patch(self, kind: Kind, name: str, change: Any, namespace: str = "") -> None:
        if self.fail_after == 0:
            raise ConnectionError
        self.fail_after -= 1
        if kind.kind == "Workload":
            self.workloads[f"{namespace}/{name}"] = change["spec"]["active"]
            return
        self.queue["metadata"]["annotations"] |= change["metadata"]["annotations"]
        self.queue["spec"] |= change.get("spec", {})

    def apply(self, wanted: Level, month: str = "2026-11") -> State:
        drainable = [name for name, active in self.workloads.items() if active]
        found: Any = self
        return control.apply(found, self.queue, wanted, month, drainable, lambda _: None)


def test_a_controller_that_dies_anywhere_is_continued_by_the_next() -> None:
    for steps in range(4):
        api = Api()
        for wanted in (Level.DRAIN, Level.NONE):
            api.fail_after = steps
            try:
                api.apply(wanted)
            except ConnectionError:
                api.fail_after = -1
                api.apply(wanted)
            open_again = wanted is Level.NONE
            assert (api.queue["spec"]["stopPolicy"] == "None") is open_again, steps
            assert all(api.workloads.values()) is open_again, steps
            api.fail_after = -1


def test_a_queue_that_somebody_else_stopped_stays_stopped() -> None:
    api = Api()
    api.queue["spec"]["stopPolicy"] = "HoldAndDrain"
    api.apply(Level.HOLD)
    api.apply(Level.NONE)
    assert api.queue["spec"]["stopPolicy"] == "HoldAndDrain"


def test_a_queue_that_is_opened_by_hand_is_held_again() -> None:
    api = Api()
    api.apply(Level.HOLD)
    api.queue["spec"]["stopPolicy"] = "None"
    api.apply(Level.HOLD)
    assert api.queue["spec"]["stopPolicy"] == "Hold"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"level": 9}', '{"until": "soon"}'])
def test_annotations_of_others_are_ignored(text: str) -> None:
    queue = {"metadata": {"annotations": {STATE: text, OVERRIDE: text}}}
    assert control.read_state(queue) == State() and control.read_override(queue) is None


def test_a_drain_stops_runs_on_spot_and_of_low_priority_only() -> None:
    queue = Api().queue

    def run(name: str, priority: int, flavor: str = "", **more: Any) -> Json:
        about = {"run_id": name, "flavor": flavor, "priority": priority, "namespace": "team-a"}
        return workload(**about | more)  # type: ignore[arg-type]

    there = [run("spot", 1000, "spot"), run("steady", 1000, "ondemand")]
    there += [run("low", 100, "ondemand"), run("off", 1000, "spot", active=False), run("queued", 1)]
    found = control.drainable(queue, there, ("spot",), 1000)
    assert found == ("team-a/jobset-low", "team-a/jobset-spot")


def test_a_budget_of_the_stack_file_needs_a_limit() -> None:
    values = stack_values(ROOT / "Pulumi.local.yaml")
    values["teams"][0]["budget"] = {"usdPerMonth": 100, "action": "drain"}
    assert parse(values).teams[0].budget
    values["teams"][0]["budget"] = {"action": "hold"}
    assert "teams[0].budget: budget-without-limit" in str(
        [f"{i.path}: {i.code}" for i in issues(values).issues if not isinstance(i, str)]
    )


class Stamped:
    """An API server that stamps a review with its time, and answers nothing else."""

    def __init__(self, stamp: str | None) -> None:
        self.stamp = stamp

    def create(self, _: Kind, __: Any) -> dict[str, Any]:
        return {"metadata": {"creationTimestamp": self.stamp} if self.stamp else {}}


SERVER = "2026-11-23T08:00:00Z"
SERVER_S = 1_795_420_800.0


@pytest.mark.parametrize("skew", [-4.0, 0.0, 0.9, 4.0])
def test_a_clock_like_the_servers_is_accepted(skew: float) -> None:
    server: Any = Stamped(SERVER)
    clock.check(server, lambda: SERVER_S + skew)


def test_a_slow_request_is_no_wrong_clock() -> None:
    server: Any = Stamped(SERVER)
    times = iter((SERVER_S - 15.0, SERVER_S + 15.0))
    clock.check(server, lambda: next(times))


@pytest.mark.parametrize(
    ("skew", "says"),
    [(3600.0, "3599 s ahead of"), (-3600.0, "3600 s behind"), (40 * 86_400.0, "ahead of")],
)
def test_a_wrong_clock_is_refused(skew: float, says: str) -> None:
    server: Any = Stamped(SERVER)
    with pytest.raises(clock.WrongClockError, match=says):
        clock.check(server, lambda: SERVER_S + skew)


@pytest.mark.parametrize("stamp", [None, "2001-01-01T00:00:00Z"])
def test_with_a_wrong_clock_nothing_is_read_recorded_or_decided(
    stamp: str | None, tmp_path: Path
) -> None:
    server: Any = Stamped(stamp)
    said: list[str] = []
    record = Record(tmp_path / "ledger")
    controller = Controller(server, record, [], said.append)
    with pytest.raises(clock.WrongClockError):
        controller.step(None, SERVER_S)
    assert said == [] and list(record.read()) == []
