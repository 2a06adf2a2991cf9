"""The ledger: buckets add up to the nodes' time, whatever happens; the record survives crashes and repeats."""

from __future__ import annotations

import csv
import dataclasses
import datetime as dt
import io
import json
import random
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from infra.domain import catalog, naming
from ops.__main__ import main
from ops.cluster import ClusterError
from ops.ledger import observe, report
from ops.ledger.accounting import account, with_replays
from ops.ledger.command import month_bounds
from ops.ledger.model import Book, Bucket, Cause, Fact, Fault, Hold, Node, Phase, Wait
from ops.ledger.observe import Sight
from ops.ledger.record import FILE, Record
from tests.unit.ops.ledger_world import MONTH_S, simulate

ROOT = Path(__file__).resolve().parents[3]
NODE = Node(uid="n", pool="spot", start=0, end=1000, purchase="spot", usd_per_hour=3.6)
HOLD = Hold(uid="p", node="n", run="r", team="a", start=100, end=900)
PHASE = Phase(run="r", attempt=1, start=200, end=700, seconds={"productive": 400, "save": 50})


def seconds(book: Book) -> dict[str, float]:
    """Node-seconds by bucket."""
    found: dict[str, float] = defaultdict(float)
    for one, amount in book.items():
        found[one.bucket.value] += amount.seconds
    return dict(found)


def booked(*facts: Fact, since: float = 0, until: float = 1000) -> dict[str, float]:
    return seconds(account(facts, since, until))


def test_a_simulated_month_is_booked_as_it_happened(request: pytest.FixtureRequest) -> None:
    runs, seed = (10_000 if request.config.getoption("--full") else 1_500), random.randrange(10**6)
    print(f"seed {seed}, {runs} runs")
    world = simulate(runs, seed)
    facts = [*world.facts, *world.facts[::3]]  # in another order, some of them twice
    random.Random(seed).shuffle(facts)
    book = account(facts, 0, MONTH_S)
    found, truth = seconds(book), dict(world.truth)
    assert sum(found.values()) == pytest.approx(world.node_seconds, rel=1e-6)
    assert report.total(book).usd == pytest.approx(world.usd, rel=1e-6)
    unused = found.pop("idle", 0.0) + found.pop("waiting", 0.0)
    assert unused == pytest.approx(truth.pop(Bucket.IDLE), rel=1e-6)
    for bucket, expected in truth.items():
        assert found.pop(bucket, 0.0) == pytest.approx(expected, rel=1e-6, abs=1), bucket
    assert found == {}


def garbage(chance: random.Random) -> list[Fact]:
    """Facts that contradict each other: clocks differ, pods overlap, faults cover runs."""

    def span() -> dict[str, Any]:
        start = chance.uniform(-200, 1200)
        return {"start": start, "end": start + chance.uniform(0, 600)}

    found: list[Fact] = []
    for number in range(4):
        found.append(dataclasses.replace(NODE, uid=f"n{number}", **span()))
        found.append(Fault(node=f"n{number}", cause="NotReady", **span()))
    for number in range(12):
        node, run = f"n{chance.randrange(5)}", f"r{chance.randrange(4)}"
        share = chance.choice((0.125, 0.5, 1.0, 1.5))
        found.append(Hold(uid=f"p{number}", node=node, run=run, team="a", share=share, **span()))
        parts = {b.value: chance.uniform(0, 500) for b in chance.sample(list(Bucket)[:3], 2)}
        first = chance.randrange(3)
        found.append(
            Phase(run=run, attempt=number, seconds=parts, steps=9, first_step=first, **span())
        )
        pools = chance.choice(((), ("spot",), ("other",)))
        found.append(Wait(run=run, team="a", pools=pools, nodes=chance.uniform(0, 3), **span()))
    return found


def test_every_node_second_is_in_one_bucket_whatever_the_facts_say() -> None:
    for seed in range(60):
        facts = garbage(random.Random(seed))
        book = account(facts, 0, 1000)
        lives = (
            max(0.0, min(n.end or 1000, 1000) - max(n.start, 0))
            for n in facts
            if isinstance(n, Node)
        )
        assert report.total(book).seconds == pytest.approx(sum(lives), abs=1e-6), f"seed {seed}"
        assert min((a.seconds for a in book.values()), default=0) >= 0, f"seed {seed}"


def test_a_months_end_divides_time_without_loss() -> None:
    facts = garbage(random.Random(7))
    whole, halves = booked(*facts), (booked(*facts, until=433), booked(*facts, since=433))
    for bucket in whole:
        parts = sum(half.get(bucket, 0.0) for half in halves)
        assert parts == pytest.approx(whole[bucket], abs=1e-6), bucket


def test_time_around_the_steps_of_a_hold() -> None:
    assert booked(NODE, HOLD, PHASE) == {
        "idle": 200,
        "starting": 100,
        "productive": 450,
        "save": 250,
    }


def test_a_group_that_joins_is_starting_while_the_others_make_steps() -> None:
    joins = dataclasses.replace(HOLD, group=1, member=400)
    assert booked(NODE, joins, PHASE) == pytest.approx(
        {"idle": 200, "starting": 300, "productive": 270, "save": 230}
    )
    assert booked(NODE, dataclasses.replace(HOLD, group=1), PHASE)["starting"] == 800


def test_time_after_the_last_step_has_the_cause_of_the_end() -> None:
    hung = dataclasses.replace(PHASE, ended=Cause.HANG.value)
    book = account([NODE, HOLD, hung], 0, 1000)
    assert [(a.bucket, amount.seconds) for a, amount in book.items() if a.cause == "hang"] == [
        (Bucket.SAVE, 200)
    ]


def test_time_on_a_broken_node_has_its_cause_and_is_of_the_run_that_holds_it() -> None:
    book = account([NODE, HOLD, PHASE, Fault(node="n", start=650, end=950, cause="Xid")], 0, 1000)
    broken = {
        (a.run, a.bucket.value): amount.seconds for a, amount in book.items() if a.cause == "Xid"
    }
    assert broken == {("r", "starting"): 250, ("", "idle"): 50}


def test_unused_nodes_wait_for_as_many_nodes_as_the_oldest_runs_want() -> None:
    nodes = [dataclasses.replace(NODE, uid=f"n{number}") for number in range(4)]
    waits = [
        Wait(run="young", team="b", start=500, nodes=9, pools=("spot",)),
        Wait(run="old", team="a", start=0, end=1000, nodes=1),
        Wait(run="elsewhere", team="a", start=0, nodes=9, pools=("other",)),
    ]
    book = account([*nodes, *waits], 0, 1000)
    found = {(a.bucket.value, a.run): amount.seconds for a, amount in book.items()}
    assert found == {("waiting", "old"): 1000, ("waiting", "young"): 1500, ("idle", ""): 1500}


def test_pods_that_share_a_node_share_its_time() -> None:
    quarter = dataclasses.replace(HOLD, share=0.25, start=0, end=1000)
    other = dataclasses.replace(quarter, uid="q", run="s", share=0.5)
    assert booked(NODE, quarter, other) == {"starting": 750, "idle": 250}


def test_steps_that_a_later_attempt_repeats_are_replayed_in_the_earlier_one() -> None:
    one = dataclasses.replace(
        PHASE, steps=100, tokens=1000.0, first_step=1, seconds={"save": 100}, ended="reclaim"
    )
    two = dataclasses.replace(one, attempt=2, start=800, end=900, first_step=76, steps=10)
    first, second = with_replays([one, two])
    assert first.seconds == {"replayed": 100, "save": 100}
    assert (first.steps, first.tokens, second.steps) == (75, 750.0, 10)
    lost = [a for a in account([NODE, HOLD, one, two], 0, 1000) if a.bucket is Bucket.REPLAYED]
    assert [(a.attempt, a.cause) for a in lost] == [(1, "reclaim")]


def test_a_node_without_a_price_is_counted_but_not_priced() -> None:
    book = account([dataclasses.replace(NODE, uid="m", usd_per_hour=None), NODE], 0, 1000)
    assert report.total(book).unpriced == 1000 and report.total(book).usd == pytest.approx(1.0)


def test_the_record_forgets_nothing_and_counts_nothing_twice(tmp_path: Path) -> None:
    facts = simulate(60, 3).facts
    for at in range(3):
        assert Record(tmp_path).write(facts) == (len(facts) if at == 0 else 0)
    assert account(Record(tmp_path).read(), 0, MONTH_S) == account(facts, 0, MONTH_S)


def test_the_last_observation_of_a_fact_counts(tmp_path: Path) -> None:
    assert Record(tmp_path / "new").write([dataclasses.replace(HOLD, end=None), NODE]) == 2
    assert Record(tmp_path / "new").write([HOLD, NODE]) == 1
    assert set(map(repr, Record(tmp_path / "new").read())) == {repr(HOLD), repr(NODE)}


def test_a_record_that_another_process_writes_or_that_is_none_is_named(tmp_path: Path) -> None:
    Record(tmp_path).write([NODE])
    with closing(sqlite3.connect(tmp_path / FILE)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ClusterError, match="another process writes this record"):
            Record(tmp_path).write([HOLD])
    (tmp_path / FILE).write_text("no database" * 100)
    with pytest.raises(ClusterError, match="not writable"):
        Record(tmp_path).write([HOLD])
    with pytest.raises(ClusterError, match="not readable"):
        Record(tmp_path).read()


def stamp(second: int) -> str:
    return f"1970-01-01T00:{second // 60:02d}:{second % 60:02d}Z"


def node_object(name: str, ready: str = "True", **labels: str) -> dict[str, Any]:
    own = {
        naming.POOL: "spot",
        naming.CAPACITY: "spot",
        naming.INSTANCE_TYPE: "p4d.24xlarge",
        naming.ZONE: "us-east-1a",
    }
    ready_since = {"type": "Ready", "status": ready, "lastTransitionTime": stamp(50), "reason": "X"}
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": stamp(10),
            "labels": own | labels,
        },
        "status": {"allocatable": {naming.GPU: "8", "cpu": "96"}, "conditions": [ready_since]},
    }


def pod_object(node: str, phase: str = "Running", gpus: str = "4", **status: Any) -> dict[str, Any]:
    labels = {naming.RUN_ID: "r-v1-00000000", naming.RUN: "r", naming.TEAM: "a"}
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(20)}
    return {
        "metadata": {"name": "p", "uid": "uid-p", "namespace": "team-a", "labels": labels},
        "spec": {
            "nodeName": node,
            "containers": [{"resources": {"requests": {naming.GPU: gpus}}}],
        },
        "status": {"phase": phase, "conditions": [scheduled], **status},
    }


def test_a_look_at_the_cluster_becomes_facts() -> None:
    bought = node_object("b", "False", **{naming.KARPENTER_CAPACITY: "on-demand"})
    sight = Sight(now=100, nodes=[node_object("a"), bought], pods=[pod_object("a")])
    found = {fact.identity: fact for fact in observe.facts(sight)}
    spot, on_demand = found["node", "uid-a"], found["node", "uid-b"]
    assert isinstance(spot, Node) and isinstance(on_demand, Node)
    assert (spot.purchase, spot.usd_per_hour, spot.start) == ("spot", 12.5, 10)
    assert (on_demand.purchase, on_demand.usd_per_hour) == ("on-demand", 21.957642)
    date = catalog.load().regions["us-east-1"].date
    assert report.price_dates(found.values(), "r-v1-00000000") == f"node prices of {date}"
    assert found["fault", "uid-b", "50.0"] == Fault(node="uid-b", start=50, cause="X")
    hold = Hold(
        uid="uid-p", node="uid-a", run="r-v1-00000000", team="a", start=20, end=None, share=0.5
    )
    assert found["hold", "uid-p"] == hold


def test_a_group_is_a_member_from_when_its_pod_is_ready_also_after_it_has_ended() -> None:
    def hold(pod: dict[str, Any], *known: Fact) -> Hold:
        pod["metadata"]["labels"][naming.GROUP] = "1"
        sight = Sight(now=100, nodes=[node_object("a")], pods=[pod])
        [found] = [f for f in observe.facts(sight, known) if isinstance(f, Hold)]
        return found

    ready = {"type": "Ready", "status": "True", "lastTransitionTime": stamp(60)}
    joining, joined = pod_object("a"), pod_object("a")
    joined["status"]["conditions"].append(ready)
    over = pod_object("a", "Failed")
    over["status"]["conditions"].append(ready | {"status": "False"})
    assert (hold(joining).group, hold(joining).member) == (1, None)
    assert hold(joined).member == 60
    assert hold(over, hold(joined)).member == 60


def test_what_is_gone_ended_between_two_looks_unless_it_may_not_be_read() -> None:
    known = observe.facts(Sight(now=100, nodes=[node_object("a")], pods=[pod_object("a")]))
    blind = Sight(now=200, hidden=frozenset({"nodes", "pods"}))
    assert observe.facts(blind, known) == []
    ended = observe.facts(Sight(now=200), known)
    assert {fact.KIND: fact.end for fact in ended if not isinstance(fact, Phase)} == {
        "node": 200,
        "hold": 200,
    }


def test_an_ended_pod_ends_with_its_last_container() -> None:
    state = {"terminated": {"finishedAt": stamp(77)}}
    pod = pod_object("a", "Succeeded", containerStatuses=[{"state": state}])
    (hold,) = [
        f
        for f in observe.facts(Sight(now=100, nodes=[node_object("a")], pods=[pod]))
        if isinstance(f, Hold)
    ]
    assert hold.end == 77


def workload_object(*conditions: dict[str, str]) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "w",
            "namespace": "team-a",
            "creationTimestamp": stamp(5),
            "ownerReferences": [{"name": "r-v1-00000000", "uid": "u", "controller": True}],
        },
        "spec": {"podSets": [{"count": 2, "template": {"spec": {"containers": []}}}]},
        "status": {"conditions": list(conditions)},
    }


def test_a_run_waits_until_it_is_admitted_and_again_after_an_eviction() -> None:
    def waits(*conditions: dict[str, str]) -> list[Wait]:
        sight = Sight(now=100, nodes=[node_object("a")], workloads=[workload_object(*conditions)])
        return [f for f in observe.facts(sight) if isinstance(f, Wait)]

    admitted = {"type": "Admitted", "status": "True", "lastTransitionTime": stamp(30)}
    evicted = {"type": "Evicted", "status": "True", "lastTransitionTime": stamp(60)}
    queued = Wait(run="r-v1-00000000", team="a", start=5, pools=("spot",), nodes=2)
    assert waits() == [queued]
    assert waits(admitted) == [dataclasses.replace(queued, end=30)]
    assert waits(evicted, admitted | {"status": "False"}) == [dataclasses.replace(queued, start=60)]


def counters(**changes: float) -> dict[str, dict[str, float]]:
    base = {"steps": 40, "step": 40, "step_s": 80, "stall_s": 2}
    return {"r-v1-00000000": base | {"attempt": 1, "tokens": 4000} | changes}


def test_counters_of_attempts_become_phases_with_replays() -> None:
    one = observe.facts(Sight(now=100, counters=counters()))
    later = observe.facts(Sight(now=150, counters=counters(steps=60, step=60, step_s=120)), one)
    merged = {f.identity: f for f in (*one, *later)}
    again = counters(steps=5, step=50, step_s=10, attempt=2)
    last = observe.facts(Sight(now=300, counters=again), list(merged.values()))
    merged |= {f.identity: f for f in last}
    first, second = with_replays([f for f in merged.values() if isinstance(f, Phase)])
    assert (first.start, first.end, first.steps) == (18, 150, 45)
    assert first.seconds["replayed"] == pytest.approx(130 * 15 / 60)
    assert (second.attempt, second.first_step) == (2, 46)


def test_time_without_a_further_step_is_not_training() -> None:
    (one,) = observe.facts(Sight(now=100, counters=counters()))
    (hung,) = observe.facts(Sight(now=400, counters=counters()), [one])
    assert hung == one


def ended(*workloads: dict[str, Any], nodes: Sequence[str] = ("a",), attempt: int = 0) -> str:
    """Why the first attempt of a run on the spot node `a` ended, by a later look."""
    first = Sight(now=100, nodes=[node_object("a")], pods=[pod_object("a")], counters=counters())
    then = counters(attempt=attempt, steps=1, step=41, step_s=2) if attempt else {}
    there = [node_object(name) for name in nodes]
    later = Sight(now=200, nodes=there, workloads=workloads, counters=then)
    found = [f for f in observe.facts(later, observe.facts(first)) if isinstance(f, Phase)]
    return next((f.ended for f in found if f.attempt == 1), "")


def test_an_attempt_ends_for_a_cause_that_the_cluster_shows() -> None:
    def condition(kind: str, reason: str, status: str = "True", at: int = 150) -> dict[str, str]:
        return {
            "type": kind,
            "status": status,
            "reason": reason,
            "lastTransitionTime": stamp(at),
        }

    assert ended(workload_object()) == ""
    assert ended(workload_object(condition("Finished", "Succeeded"))) == "done"
    assert ended(workload_object(condition("Finished", "Failed"))) == "failure"
    assert ended(workload_object(condition("Evicted", "Preempted"))) == "preemption"
    assert ended(workload_object(condition("Evicted", "NodeFailures"))) == "node"
    assert ended(workload_object(condition("Evicted", "NodeFailures")), nodes=()) == "reclaim"
    assert ended(workload_object(condition("Evicted", "Preempted", at=5))) == ""
    assert ended(workload_object(), attempt=2) == "unknown"
    assert ended(workload_object(), attempt=1) == ""
    assert ended(workload_object(), attempt=2, nodes=("b",)) == "reclaim"


def test_the_monthly_report_adds_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    since, _ = month_bounds(dt.date(2025, 6, 1))
    world = simulate(80, 5)
    moved = [_moved(fact, since) for fact in world.facts]
    Record(tmp_path / "ledger").write(moved)
    files = ["--csv", str(tmp_path / "m.csv")]
    arguments = ["cost", "report", "--record", str(tmp_path / "ledger"), "--month", "2025-06"]
    assert main([*arguments, *files, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert sum(row["node_hours"] for row in rows) * 3600 == pytest.approx(
        world.node_seconds, rel=1e-4
    )
    table = list(csv.DictReader(io.StringIO((tmp_path / "m.csv").read_text())))
    assert sum(float(row["usd"]) for row in table) == pytest.approx(world.usd, rel=1e-4)
    assert main(arguments) == 0
    assert "productive" in capsys.readouterr().out


def _moved(fact: Fact, by: float) -> Fact:
    """The fact in a month that has thirty days."""
    end = None if fact.end is None else fact.end + by
    return dataclasses.replace(fact, start=fact.start + by, end=end)  # type: ignore[arg-type]


def test_a_report_without_a_record_says_what_to_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "report", "--month", "2025-06"]) == 2
    assert "--record: missing" in capsys.readouterr().err


def test_a_planned_stack_has_prices_without_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stack", "cost", "--stack", "local", "--planned", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["usdPerHour"]["atMax"] == pytest.approx(190.448168)
    lookup = catalog.load().regions["us-east-1"]
    origin = {"region": "us-east-1", "date": f"{lookup.date}", "source": lookup.source}
    assert found["prices"] == [origin | {"remembered": []}]
    assert main(["stack", "cost", "--stack", "local", "--planned"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"Prices of nodes in us-east-1: of {lookup.date}: on-demand: " in said
    assert main(["stack", "cost", "--stack", "nowhere", "--planned"]) == 2
    assert "expected one of dev, local, prod" in capsys.readouterr().err


def test_what_interruptions_cost_is_said_only_where_steps_are_known() -> None:
    with_steps = report.of_run(account([NODE, HOLD, PHASE], 0, 1000), "r")
    without = report.of_run(account([NODE, HOLD], 0, 1000), "r")
    assert any("for interruptions" in line for line in report.sentences(with_steps, 10, 0.0))
    [line] = report.sentences(without, 0, 0.0)
    assert "not known" in line and "Prometheus" in line
