"""`stack review --live`: runs that a change reaches because they are on what it takes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from infra.domain import naming
from ops.objects import Json
from ops.review import consequences, impacts, live, report
from ops.review.impacts import Impact, Place
from ops.review.live import Live
from ops.review.steps import Preview
from tests.unit.ops import run_fixtures as world
from tests.unit.ops.test_ops_commands import FakeCluster
from tests.unit.ops.test_review_live import Silent, change, group, node

SUBMITTED, OTHER = "tuned-v3-bbbbbbbb", "other-v1-cccccccc"


def gang(run_id: str, namespace: str = "team-research", *, done: bool = False) -> Json:
    found = world.run()
    labels = {**found["metadata"]["labels"], naming.RUN_ID: run_id, naming.RUN: run_id[:5]}
    meta = {"name": run_id, "namespace": namespace, "uid": run_id, "labels": labels}
    found["metadata"] = {**found["metadata"], **meta}
    found["spec"] = {"template": {"spec": world.pod_spec()}}
    found["apiVersion"] = "jobset.x-k8s.io/v1alpha2"
    return found | ({"status": {"conditions": [world.condition("Completed")]}} if done else {})


def pod(run_id: str, on: str, namespace: str = "team-research", phase: str = "Running") -> Json:
    labels = {naming.RUN_ID: run_id}
    return {
        "kind": "Pod",
        "metadata": {"name": f"{run_id}-{on}", "namespace": namespace, "labels": labels},
        "spec": world.pod_spec() | {"nodeName": on},
        "status": {"phase": phase},
    }


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
