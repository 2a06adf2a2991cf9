"""What `spot steer` remembers of runs, which nodes it cordons, and which groups leave them."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from typing import Any

import pytest

from infra.domain import naming
from infra.observability import series
from ops.cluster import Kind
from ops.collect import CLUSTER_QUEUES, NODES, WORKLOADS
from ops.metrics import MetricsUnknownError, Sample
from ops.objects import Json, full_name
from ops.promql import Expression
from ops.steer import cordon, memory, settings
from ops.steer.control import Controller
from ops.steer.cordon import PAUSE_S, REMEMBERED_S, SLOW_S, Named, Record, allowed, leaving
from ops.steer.memory import Memory, Seen
from tests.unit.ops.group_fixtures import admitted, queued
from tests.unit.ops.run_fixtures import condition, runs_on

NOW = 1_800_000_000.0


def after(*looks: tuple[Seen, set[str]], old: Memory | None = None) -> Memory:
    """The memory after looks a minute apart, each with the nodes that were lost by then."""
    found = old or Memory()
    for number, (seen, gone) in enumerate(looks):
        found = memory.update(found, NOW + 60 * number, seen, gone)
    return found


def running(pool: str, *nodes: str, since: float = NOW, **counts: Any) -> Seen:
    return Seen(created=NOW, pool=pool, nodes=nodes, ready=since, **counts)


def starting(pool: str, **counts: Any) -> Seen:
    return Seen(created=NOW, pool=pool, **counts)


def waiting(**counts: Any) -> Seen:
    return Seen(created=NOW, **counts)


def test_a_lost_node_is_one_loss_even_if_kueue_evicts_the_gang_for_it() -> None:
    found = after(
        (running("spot", "a", "b"), set()),
        (starting("spot"), {"a"}),
        (waiting(recoveries=1), {"a"}),
        (running("spot", "b", "c", since=NOW + 170, recoveries=1), {"a"}),
    )
    assert found.history.losses == ((NOW + 60, "spot"),)
    assert found.history.restart_s == 110 and found.down is None


def test_a_time_out_without_a_lost_node_is_a_loss_too() -> None:
    found = after((running("spot", "a"), set()), (waiting(recoveries=1), set()))
    assert found.history.losses == ((NOW + 60, "spot"),)
    assert found.queued == NOW + 60


def test_a_group_that_waits_for_others_says_nothing_of_its_pool() -> None:
    group = {"of_group": True}
    waits = after(
        (running("spot", "a", **group), set()),
        (waiting(recoveries=1, **group), set()),
        (starting("spot", recoveries=1, **group), set()),
    )
    assert not waits.history.losses
    alone = after(
        (Seen(created=NOW, pool="spot", nodes=("a",), of_group=True), set()),
        (waiting(starts=1, **group), set()),
    )
    assert not alone.history.empty
    # Without a node for it, the pool was empty; a node that was lost was one.
    nothing = after((starting("spot", **group), set()), (waiting(starts=1, **group), set()))
    assert nothing.history.empty["spot"].times == 1
    lost = after((running("spot", "a", **group), set()), (waiting(**group), {"a"}))
    assert len(lost.history.losses) == 1


def test_a_start_that_timed_out_makes_the_pool_empty_until_it_runs_there() -> None:
    looks = [(starting("spot"), set[str]()), (waiting(starts=1), set[str]())]
    found = after(*looks)
    assert found.history.empty["spot"].times == 1 and not found.history.losses
    again = after((starting("spot", starts=1), set()), (waiting(starts=2), set()), old=found)
    assert again.history.empty["spot"].times == 2
    assert not after((running("spot", "a", starts=2), set()), old=again).history.empty


def test_a_preempted_run_and_one_that_is_moved_lose_nothing() -> None:
    assert not after((running("spot", "a"), set()), (waiting(), set())).history.losses
    moving = Memory(pool="spot", nodes=("a",), moving=True)
    assert not after((waiting(), {"a"}), old=moving).history.losses


def test_nodes_that_it_no_longer_holds_may_go() -> None:
    found = after(
        (running("spot", "a"), set()), (waiting(), set()), (waiting(), {"a"}), (waiting(), {"a"})
    )
    assert not found.history.losses


def test_it_survives_a_restart_and_whatever_an_annotation_says() -> None:
    found = after((running("spot", "a"), set()), (starting("spot"), {"a"}))
    assert memory.parse(found.text()) == found


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", "x", '{"history": {}}', '{"a": 1}'])
def test_an_annotation_that_is_not_ours_is_a_new_run(text: str) -> None:
    assert memory.parse(text) == Memory()


RUN = ("team-research", "hello-v1-aaaaaaaa")
OTHER = ("team-research", "big-v1-bbbbbbbb")


def verdict(symptom: str = "corrupt-rank", *, at: float = NOW, **changes: Any) -> Named:
    made = Named(run=RUN, symptom=symptom, rank="3", node="n1", time=at)
    return replace(made, **changes)


def suspects(*looks: tuple[float, dict[Any, set[str]], list[Named]]) -> dict[str, str]:
    record = Record()
    for after, held, found in looks:
        record.look(held, found, NOW + after)
    return record.suspects(NOW + looks[-1][0])


def test_a_node_that_computed_wrong_values_is_cordoned_at_once() -> None:
    found = suspects((0, {RUN: {"n1"}}, [verdict()]))
    assert found == {"n1": f"rank 3 of {RUN[1]} computed wrong values"}


def test_a_run_cannot_name_a_node_that_it_was_not_on() -> None:
    assert suspects((0, {RUN: {"n2"}, OTHER: {"n1"}}, [verdict()])) == {}


def test_a_gang_that_has_restarted_elsewhere_still_names_its_former_node() -> None:
    assert suspects((0, {RUN: {"n1"}}, []), (60, {RUN: {"n2"}}, [verdict(at=NOW + 50)]))
    late = REMEMBERED_S + 60
    assert not suspects((0, {RUN: {"n1"}}, []), (late, {}, [verdict(at=NOW + late)]))


def test_the_first_hang_may_be_the_programs() -> None:
    here = {RUN: {"n1"}, OTHER: {"n1"}}
    first = verdict("hung")
    assert suspects((0, here, [first]), (60, here, [first])) == {}
    again = verdict("hung", at=NOW + 300)
    assert suspects((0, here, [first]), (300, here, [again])) == {
        "n1": "2 hangs of ranks on it within an hour"
    }
    assert "n1" in suspects((0, here, [first, verdict("hung", run=OTHER)]))


@pytest.mark.parametrize("symptom", ["slow-loader", "bored"])
def test_faults_of_programs_and_storage_cordon_nothing(symptom: str) -> None:
    looks = [(60.0 * n, {RUN: {"n1"}}, [verdict(symptom, at=NOW + 60 * n)]) for n in range(30)]
    assert suspects(*looks) == {}


def test_a_hang_without_a_rank_cordons_nothing() -> None:
    both = [verdict("hung", rank="-1"), verdict("hung", rank="-1", at=NOW + 1)]
    assert suspects((0, {RUN: {"n1"}}, both)) == {}


def test_a_rank_must_stay_slow() -> None:
    looks = [(60.0 * n, {RUN: {"n1"}}, [verdict("slow-rank", at=NOW + 60 * n)]) for n in range(12)]
    assert suspects(*looks[:5]) == {}
    assert "slow for 11 min" in suspects(*looks)["n1"]
    gap = [*looks[:6], (400.0, {RUN: {"n1"}}, []), *looks[7:]]
    assert looks[-1][0] > SLOW_S and suspects(*gap) == {}


def test_at_most_one_node_of_a_pool_in_an_hour_and_a_tenth_of_it() -> None:
    found = {f"n{n}": "why" for n in range(4)}
    pools = {f"n{n}": "spot" for n in range(25)} | {"m0": "bought"}
    assert allowed(found, pools, {}, NOW) == ["n0"]
    assert allowed({**found, "m0": "why"}, pools, {}, NOW) == ["n0", "m0"]
    assert allowed(found, pools, {"n9": NOW - 60}, NOW) == []
    old = NOW - PAUSE_S - 1
    assert allowed(found, pools, {"n9": old}, NOW) == ["n0"]
    assert allowed(found, pools, {"n9": old, "n8": old}, NOW) == []
    assert allowed({"gone": "why"}, pools, {}, NOW) == []


def test_a_node_that_a_person_has_cordoned_or_opened_again_is_not_ours() -> None:
    def node(note: str, *, closed: bool = True) -> Json:
        notes = {naming.CORDONED: note} if note else {}
        meta = {"name": "n1", "uid": "u1", "annotations": notes}
        return {"metadata": meta, "spec": {"unschedulable": closed}}

    ours = json.dumps({"at": NOW, "why": "it hangs"})
    assert cordon.because([node(ours)]) == {"u1": "node n1: it hangs"}
    assert cordon.because([node("")]) == cordon.because([node(ours, closed=False)]) == {}


def group(number: int, *, least: int = 1, ready: bool = True, active: bool = True) -> Json:
    found = admitted(number, active=active)
    found["metadata"]["labels"][naming.GROUPS_MIN] = str(least)
    found["status"]["conditions"].append(condition("PodsReady", "True" if ready else "False"))
    return found


def left(*workloads: Json, nodes: dict[int, str]) -> dict[str, int]:
    """Group number N is on the node `nodes[N]`; n1 and n2 are cordoned."""
    names = {full_name(one): number for number, one in enumerate(workloads)}
    on = {name: {nodes[number]} for name, number in names.items() if number in nodes}
    found = leaving(workloads, on, {"n1", "n2"})
    return {str(names[name]): others for name, others in found.items()}


def test_a_group_on_a_cordoned_node_leaves_and_the_others_stay() -> None:
    three = [group(number) for number in range(3)]
    assert left(*three, nodes={0: "n0", 1: "n1", 2: "n3"}) == {"1": 2}


def test_no_group_leaves_where_too_few_others_would_train() -> None:
    both = [group(number, least=2) for number in range(2)]
    assert left(*both, nodes={0: "n0", 1: "n1"}) == {}
    assert left(group(0, ready=False), group(1), nodes={0: "n0", 1: "n1"}) == {}
    assert left(queued(0), group(1), nodes={1: "n1"}) == {}
    assert left(group(1), nodes={0: "n1"}) == {}


def test_of_two_groups_on_cordoned_nodes_one_leaves_first() -> None:
    both = [group(number) for number in (1, 2)]
    assert left(*both, nodes={0: "n1", 1: "n2"}) == {"0": 1}


def test_a_group_that_has_ended_with_an_error_does_not_wait_for_its_node() -> None:
    gone = group(1, ready=False)
    assert left(group(0), gone, nodes={0: "n0", 1: "n1"}) == {"1": 1}


def test_a_group_that_was_stopped_and_a_run_without_groups_stay() -> None:
    assert left(group(0), group(1, active=False), nodes={0: "n0", 1: "n1"}) == {}
    gang = group(1)
    del gang["metadata"]["labels"][naming.GROUP]
    assert left(group(0), gang, nodes={0: "n0", 1: "n1"}) == {}


HOUR_S = 3600.0
RUN_ID = "hello-v1-aaaaaaaa"
SETTINGS = settings.parse(
    {
        "pools": [
            {"name": "spot", "place": "spot", "usdPerNodeHour": 10.0},
            {"name": "bought", "place": "on-demand", "usdPerNodeHour": 30.0},
        ],
        "rules": {"losses": 2, "windowSeconds": 6 * HOUR_S, "emptySeconds": HOUR_S},
    }
)


def time_text(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class World:
    """A run with a deadline in ten hours, which holds spot nodes, and the Prometheus that knows it."""

    place = "here"

    def __init__(self, max_hours: float | None = None) -> None:
        self.left_h: float | None = None
        self.down = False
        self.workload = runs_on("spot", run_id=RUN_ID, spec={"containers": []})
        self.workload["metadata"]["creationTimestamp"] = time_text(NOW)
        [pods] = self.workload["spec"]["podSets"]
        deadline = {naming.DEADLINE: time_text(NOW + 10 * HOUR_S)}
        pods["template"]["metadata"] = {"annotations": deadline}
        if max_hours:
            self.workload["spec"]["maximumExecutionTimeSeconds"] = max_hours * HOUR_S
        self.controller = Controller(self, SETTINGS, lambda _: None)  # type: ignore[arg-type]

    def items(self, kind: Kind, *_: Any) -> list[Json]:
        flavors = [{"name": name} for name in SETTINGS.pools]
        queue = {
            "metadata": {"name": "team-research"},
            "spec": {"resourceGroups": [{"flavors": flavors}]},
        }
        return {CLUSTER_QUEUES: [queue], WORKLOADS: [self.workload], NODES: []}.get(kind, [])

    def patch(self, _kind: Kind, _name: str, change: Json, _namespace: str) -> None:
        self.workload["metadata"].setdefault("annotations", {}).update(
            change["metadata"]["annotations"]
        )

    def create(self, *_: Any) -> None:
        """Take an event."""

    def query(self, asked: Expression) -> list[Sample]:
        """Ten hours of work in steps of a second."""
        if self.down:
            raise MetricsUnknownError("no answer")
        if self.left_h is None:
            return []
        values = {
            f"max by (run_id) ({series.STEP})": (6 - self.left_h) * HOUR_S,
            f"max by (run_id) ({series.PLANNED_STEPS})": 6 * HOUR_S,
        }
        expression = str(asked)
        found = 1.0 if "rate(" in expression else values.get(expression)
        return [] if found is None else [Sample(labels={"run_id": RUN_ID}, value=found)]

    def look(self, hours: float) -> str:
        """Where it may be after a look; empty: everywhere."""
        self.controller.step(self, NOW + hours * HOUR_S)  # type: ignore[arg-type]
        notes = self.workload["metadata"].get("annotations") or {}
        if naming.STEERING in notes:
            assert json.loads(notes[naming.STEERING])["place"]
        return str(notes.get(naming.ALLOWED_FLAVORS) or "")


@pytest.mark.parametrize("down", [False, True])
def test_a_gang_that_reports_nothing_for_a_while_keeps_what_it_has_done(down: bool) -> None:
    world = World()
    world.left_h = 5.0
    assert world.look(1.0) == "spot"
    world.left_h, world.down = None, down
    assert world.look(1.5) == "spot"


def test_a_gang_that_has_never_reported_goes_to_on_demand_unless_its_longest_time_fits() -> None:
    assert World().look(0.0) == "bought"
    assert World(max_hours=6).look(0.0) == "spot"
    assert World(max_hours=9.9).look(0.0) == "bought"


def test_what_was_known_of_a_run_does_not_outlive_it() -> None:
    world = World()
    world.left_h = 5.0
    assert world.look(1.0) == "spot"
    world.left_h, labels = None, world.workload["metadata"]["labels"]
    for run_id in ("other-v1-bbbbbbbb", RUN_ID):
        labels[naming.RUN_ID] = run_id
        assert world.look(1.0) == "bought"
