"""A pod on a node without a kubelet holds up its gang: it is named, with the node and the remedy."""

from __future__ import annotations

import pytest

from ops import report
from ops.objects import Json
from ops.symptoms import explain
from tests.unit.ops.run_fixtures import (
    at,
    condition,
    node,
    pod,
    run,
    runs_on,
    snapshot,
    waits,
    workload,
)
from tests.unit.snapshots import Text

SILENT = condition("Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
NOT_READY = condition("Ready", "False", "NodeNotReady")


def silent(name: str = "spot-0") -> Json:
    lost = node(name)
    lost["status"]["conditions"] = [SILENT]
    return lost


def terminating(seconds_ago: float = 300, name: str = "hello-0") -> Json:
    found = pod(name, conditions=[NOT_READY])
    found["metadata"]["deletionTimestamp"] = at(seconds_ago)
    return found


EVICTED = workload(
    waits("couldn't assign flavors"),
    condition("Evicted", reason="PodsReadyTimeout"),
    requeueState={"count": 3, "requeueAt": at(-60)},
)


@pytest.mark.parametrize("admission", [EVICTED, runs_on()], ids=["evicted", "admitted"])
def test_a_pod_that_cannot_end_is_named_with_its_node(admission: Json, text: Text) -> None:
    taken = snapshot(workload=admission, pods=[terminating()], nodes=[silent(), node("spot-1")])
    verdict = explain(taken)
    assert verdict.symptom == "lost-node"
    text([verdict.headline, *verdict.evidence, *verdict.remedy])
    assert report.values(taken)["symptom"] == "lost-node"  # what the run page shows


def test_a_run_that_is_deleted_cannot_end_before_its_pod() -> None:
    gone = run()
    gone["metadata"]["deletionTimestamp"] = at(400)
    verdict = explain(snapshot(run=gone, pods=[terminating()], nodes=[silent()]))
    assert verdict.headline == "cannot end: 1 pod cannot end on spot-0"


def test_a_node_is_named_before_its_pods_are_deleted() -> None:
    pods = [pod("hello-0", conditions=[NOT_READY]), pod("hello-1")]
    verdict = explain(snapshot(workload=runs_on(), pods=pods, nodes=[silent()]))
    assert verdict.headline == "has lost spot-0: no kubelet reports from there"


def test_without_rights_on_nodes_a_pod_that_is_late_is_enough() -> None:
    hidden = frozenset({"nodes"})
    late = snapshot(workload=EVICTED, pods=[terminating(120)], nodes=[], hidden=hidden)
    assert explain(late).symptom == "lost-node"
    soon = snapshot(workload=EVICTED, pods=[terminating(30)], nodes=[], hidden=hidden)
    assert explain(soon).symptom == "backoff"


@pytest.mark.parametrize(
    ("pods", "nodes"),
    [
        ([terminating(-20)], [silent()]),
        ([terminating()], [node("spot-0")]),
        ([terminating() | {"status": {"phase": "Failed"}}], [silent()]),
        ([], [silent()]),
    ],
    ids=[
        "its grace period",
        "a node that works",
        "a pod that has ended",
        "a node without its pods",
    ],
)
def test_other_states_are_left_to_other_symptoms(pods: list[Json], nodes: list[Json]) -> None:
    assert explain(snapshot(workload=EVICTED, pods=pods, nodes=nodes)).symptom == "backoff"


def test_a_failed_run_keeps_its_failure() -> None:
    over = run(status={"conditions": [condition("Failed", message="exit code 3")]})
    found = explain(snapshot(run=over, pods=[terminating()], nodes=[silent()]))
    assert found.symptom == "failed"
