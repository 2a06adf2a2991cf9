"""`stack review --live`: what a change costs and reaches with the nodes and runs that are there now."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from infra.domain import catalog, naming, prices
from infra.domain.prices import Purchase
from ops.metrics import MetricsUnknownError, PrometheusClient
from ops.objects import Json
from ops.review import consequences, impacts, live, money, report
from ops.review.consequences import Review, review
from ops.review.impacts import Consequence, Impact, Place
from ops.review.live import Live, Unsaved
from ops.review.steps import Change, Preview, Step
from ops.runs import states
from ops.runs.details import Checkpoints, Details, details_of
from tests.unit.ops import run_fixtures as world
from tests.unit.ops.test_ops_commands import FakeCluster

REGION = "us-east-1"
KIND = "g6.xlarge"
GROUP = f"urn:pulumi:dev::trainyard::{money.NODE_GROUP}::spot"
SPOT, ON_DEMAND = (
    prices.usd_per_hour(KIND, how, REGION) for how in (Purchase.SPOT, Purchase.ON_DEMAND)
)


def group(least: int, most: int, kind: str = KIND, how: str = "SPOT") -> dict[str, Any]:
    return {
        "labels": {naming.POOL: "spot"},
        "instanceTypes": [kind],
        "capacityType": how,
        "scalingConfig": {"minSize": least, "maxSize": most},
    }


def node(how: str = "SPOT", pool: str = "spot") -> dict[str, str]:
    return {
        naming.POOL: pool,
        naming.INSTANCE_TYPE: KIND,
        naming.ZONE: f"{REGION}a",
        naming.EKS_CAPACITY: how,
    }


def change(old: dict[str, Any] | None, new: dict[str, Any] | None) -> Preview:
    kind = Change.UPDATE if old and new else Change.DELETE if old else Change.CREATE
    step = Step(urn=GROUP, change=kind, old=old or {}, new=new or {})
    return Preview(stack="dev", region=REGION, steps=(step,), findings=())


@pytest.mark.parametrize(
    ("old", "new", "nodes", "spot_nodes"),
    [
        (group(0, 8), None, 3, -3),
        (None, group(2, 8), 0, 2),
        (group(0, 8), group(0, 16), 3, 0),
        (group(0, 8), group(0, 2), 3, -1),
        (group(0, 8), group(5, 8), 3, 2),
        (group(0, 8), group(0, 16), 0, 0),
    ],
)
def test_a_changed_pool_costs_by_its_nodes_of_now(
    old: dict[str, Any] | None, new: dict[str, Any] | None, nodes: int, spot_nodes: int
) -> None:
    assert SPOT
    mine = [node() for _ in range(nodes)]
    others = [node("ON_DEMAND", "elsewhere")] * 5
    assert live.difference(change(old, new), [*mine, *others]) == pytest.approx(spot_nodes * SPOT)


def test_nodes_are_bought_anew_where_the_purchase_changes() -> None:
    assert SPOT and ON_DEMAND
    moved = change(group(0, 8), group(0, 8, how="ON_DEMAND"))
    assert live.difference(moved, [node(), node()]) == pytest.approx(2 * (ON_DEMAND - SPOT))


def test_nodes_of_a_capacity_block_cost_the_same_whether_they_run_or_not() -> None:
    def block(most: int) -> dict[str, Any]:
        return group(0, most, how="CAPACITY_BLOCK")

    assert ON_DEMAND
    for nodes in ([], [node("CAPACITY_BLOCK"), node("CAPACITY_BLOCK")]):
        assert live.difference(change(block(8), block(6)), nodes) == pytest.approx(-2 * ON_DEMAND)
        assert live.difference(change(block(8), None), nodes) == pytest.approx(-8 * ON_DEMAND)
        assert live.difference(change(None, block(8)), []) == pytest.approx(8 * ON_DEMAND)


def test_an_unknown_price_is_not_taken_for_nothing() -> None:
    assert live.difference(change(group(0, 8), group(0, 8, "x9.unheard")), [node()]) is None


def sized(least: int, most: int, desired: int) -> dict[str, Any]:
    found = group(least, most)
    return found | {"scalingConfig": found["scalingConfig"] | {"desiredSize": desired}}


@pytest.mark.parametrize(
    ("new", "says"), [(sized(0, 16, 3), "sets 3 nodes"), (sized(0, 8, 5), ""), (None, "")]
)
def test_new_limits_of_a_node_group_come_with_the_size_in_the_state(
    new: dict[str, Any] | None, says: str
) -> None:
    details = [one.detail for one in review(change(sized(0, 8, 3), new)).consequences]
    assert [says in one for one in details] == [True] * len(details)
    assert any("sets" in one for one in details) is bool(says)


class Silent(PrometheusClient):
    """A Prometheus that does not answer."""

    def __init__(self) -> None:
        super().__init__("none", lambda *_: None)

    def query(self, expression: object) -> Any:
        raise MetricsUnknownError("no Prometheus")


def running(checkpoint: Checkpoints) -> tuple[Details, list[dict[str, Any]]]:
    """A run of two nodes with 8 GPUs each, admitted an hour ago."""
    pods = [world.pod(f"pod-{n}") for n in range(2)]
    taken = dataclasses.replace(world.snapshot(), pods=pods)
    found = details_of(NoCluster(), taken, Silent())  # type: ignore[arg-type]
    summary = dataclasses.replace(found.summary, admitted=world.at(3600), state=states.RUNNING)
    return dataclasses.replace(found, summary=summary, checkpoints=checkpoint), pods


class NoCluster:
    """A cluster in which nothing can be read."""

    def get(self, *_: object, **__: object) -> None:
        return None


@pytest.mark.parametrize(
    ("saved_s_ago", "gpu_hours"),
    [(1800, 8.0), (7200, 16.0), (None, 16.0)],
)
def test_a_run_loses_at_most_the_time_since_its_checkpoint(
    saved_s_ago: float | None, gpu_hours: float
) -> None:
    saved = "" if saved_s_ago is None else world.at(saved_s_ago)
    step = None if saved_s_ago is None else 120
    found, pods = running(Checkpoints(place="", step=step, saved=saved))
    lost = live.unsaved(world.RUN_ID, found, pods, world.NOW)
    assert lost.gpus == 16 and lost.gpu_hours == pytest.approx(gpu_hours) and lost.step == step


def test_a_run_that_does_not_run_loses_nothing() -> None:
    found, pods = running(Checkpoints(place=""))
    assert live.unsaved(world.RUN_ID, found, [], world.NOW).gpu_hours == 0
    over = dataclasses.replace(
        found, summary=dataclasses.replace(found.summary, state=states.FINISHED)
    )
    assert live.unsaved(world.RUN_ID, over, pods, world.NOW).gpu_hours == 0


def test_the_comment_has_the_state_of_now_and_what_is_not_known() -> None:
    stopped = Consequence(what="run", name=world.RUN_ID, does="stopped")
    review = Review(
        stack="dev",
        steps={"delete": 2},
        usd_per_hour_idle=0.0,
        usd_per_hour_at_max=0.0,
        prices=prices.dated("eu-west-1", ["m6i.xlarge", "p4d.24xlarge"]),
        unpriced=(),
        consequences=(stopped,),
        edited_runs=(),
        findings=(),
    )
    unsaved = (
        Unsaved(run=world.RUN_ID, gpus=16, hours=0.5, step=120),
        Unsaved(run="other", gpus=0, hours=None, gap="it is not on this cluster"),
    )
    state = Live(nodes={"spot": 3}, usd_per_hour=-1.5, unsaved=unsaved, gaps=("nodes: x",))
    text = report.text(review, state)
    assert "-1.50 per hour now" in text and "Nodes now: spot 3" in text and "nodes: x" in text
    date = catalog.load().regions["eu-west-1"].date
    assert f"Prices of nodes: of {date}, only remembered: m6i.xlarge; of services" in text
    assert "at most 8.0 GPU-hours and 1 runs not known" in text and "step 120" in text
    assert len(text.splitlines()) <= report.LINES_MAX
    assert report.to_json(review, state)["live"]["unsaved"][0]["gpuHours"] == 8.0
    assert "live" not in report.to_json(review)


SUBMITTED, OTHER = "tuned-v3-bbbbbbbb", "other-v1-cccccccc"


def gang(run_id: str, namespace: str = "team-research", *, done: bool = False) -> Json:
    found = world.run()
    labels = {**found["metadata"]["labels"], naming.RUN_ID: run_id, naming.RUN: run_id[:5]}
    meta = {"name": run_id, "namespace": namespace, "uid": run_id, "labels": labels}
    found["metadata"] = {**found["metadata"], **meta}
    found["spec"] = {"template": {"spec": world.pod_spec()}}
    found["apiVersion"] = "jobset.x-k8s.io/v1alpha2"
    return found | ({"status": {"conditions": [world.condition("Completed")]}} if done else {})


def pod(run_id: str, on: str, phase: str = "Running") -> Json:
    found = world.pod(f"{run_id}-{on}", phase)
    found["metadata"]["labels"][naming.RUN_ID] = run_id
    found["spec"]["nodeName"] = on
    return found


def machine(name: str, pool: str = "spot") -> Json:
    labels = node(pool=pool)
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": {}}


NODES = [machine("a"), machine("b"), machine("c", "ondemand")]
RUNS = [gang(SUBMITTED), gang(OTHER), gang("over-v1-dddddddd", done=True)]
PODS = [pod(SUBMITTED, "a"), pod(OTHER, "c"), pod(OTHER, "b", phase="Succeeded")]


def reviewed(preview: Preview, *forbidden: str) -> tuple[Live, consequences.Review]:
    cluster: Any = FakeCluster(forbidden, nodes=NODES, jobsets=RUNS, pods=PODS)
    return live.read(cluster, preview, consequences.review(preview), Silent(), world.NOW)


def runs(review: consequences.Review) -> list[tuple[str, str]]:
    return [(one.name, one.happens) for one in review.consequences if one.what == "run"]


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (None, [(SUBMITTED, "restarted")]),
        (group(0, 0), [(SUBMITTED, "restarted")]),
        (group(0, 1), [(SUBMITTED, "may be restarted")]),
        (group(0, 2), []),
        (group(0, 8) | {"releaseVersion": "2"}, [(SUBMITTED, "restarted")]),
        (group(0, 9), []),
    ],
)
def test_submitted_runs_on_nodes_that_go_are_named_and_others_are_not(
    new: dict[str, Any] | None, expected: list[tuple[str, str]]
) -> None:
    preview = change(group(0, 8) | {"releaseVersion": "1"}, new and {"releaseVersion": "1"} | new)
    found, review = reviewed(preview)
    assert runs(review) == expected
    assert [one.run for one in found.unsaved] == [name for name, _ in expected]
    assert "submitted runs" not in report.text(review, found)


def test_a_role_that_reads_no_pods_leaves_it_open_which_runs_are_reached() -> None:
    found, review = reviewed(change(group(0, 8), None), "pods", "jobsets")
    assert runs(review) == [] and not found.placed
    text = report.text(review, found)
    assert "Reaches the runs on: pool spot deleted; which submitted runs these are" in text
    assert "your role may not list runs and their pods" in text


def test_a_loss_that_may_not_be_read_says_why() -> None:
    preview = change(group(0, 8), None)
    lost = impacts.Consequence(what="run", name=OTHER, does="stopped")
    known = consequences.review(preview)
    known = dataclasses.replace(known, consequences=(lost,))
    cluster: Any = FakeCluster(("pods", "jobsets"), nodes=NODES)
    found, review = live.read(cluster, preview, known, Silent(), world.NOW)
    line = "GPU-hours lost with the runs that end: not known: your role may not list runs"
    assert line in report.text(review, found).splitlines()


def test_places_are_the_nodes_of_live_pods_of_runs_that_did_not_end() -> None:
    found = live.places(RUNS, PODS, NODES)
    assert [(one.run, one.nodes) for one in found] == [
        (SUBMITTED, frozenset({("spot", "a")})),
        (OTHER, frozenset({("ondemand", "c")})),
    ]
    assert {one.pools for one in found} == {("ondemand", "spot")}


def test_a_run_of_another_namespace_or_queue_is_not_reached() -> None:
    place = Place(run="a", namespace="team-a", queue="a", pools=(), nodes=frozenset())
    taken = [
        Impact(what="namespace", name="team-b", why="deleted", does="stopped"),
        Impact(what="queue", name="team-b/a", why="deleted", does="held"),
    ]
    assert list(impacts.effects(taken, [place], {})) == []
    assert list(
        impacts.effects([taken[0]], [Place(run="a", namespace="team-b", queue="a", pools=())], {})
    ) == [
        impacts.Consequence(
            what="run", name="a", does="stopped", detail="namespace team-b deleted", indirect=True
        )
    ]
