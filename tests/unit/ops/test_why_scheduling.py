"""Why the pods of an admitted run find no node."""

from __future__ import annotations

import pytest

from infra.domain import naming
from ops.objects import Json
from ops.placement import gpu_not_visible, node_rejections
from ops.snapshot import Snapshot
from ops.symptoms import explain, scheduling
from ops.verdict import Verdict
from tests.unit.ops.run_fixtures import (
    at,
    event,
    node,
    pod,
    pod_spec,
    run,
    runs_on,
    snapshot,
    stuck,
    waits,
    workload,
)
from tests.unit.snapshots import Text

TAINT = {"key": "broken", "effect": "NoExecute"}


def why(*nodes: Json, message: str = "", pods: list[Json] | None = None, **more: object) -> Verdict:
    """The answer for an admitted run with a pod that finds none of these nodes."""
    found = [stuck(message=message)] if pods is None else pods
    return explain(snapshot(workload=runs_on(), pods=found, nodes=list(nodes), **more))


def test_a_taint_that_is_not_tolerated_is_named_with_the_nodes_that_have_it(text: Text) -> None:
    verdict = why(node("spot-0", "spot", TAINT), message="0/1 nodes are available")
    assert verdict.symptom == "missing-toleration"
    text(verdict.evidence)


def test_pods_of_an_earlier_admission_are_told_from_labels_without_nodes(text: Text) -> None:
    old = stuck(message="0/2 nodes are available: 2 node(s) didn't match Pod's node affinity")
    old["spec"]["nodeSelector"] = {naming.POOL: "ondemand"}
    nodes = [node("spot-0", "spot")]
    verdict = why(*nodes, pods=[old])
    assert verdict.symptom == "earlier-admission"
    text([verdict.headline, *verdict.remedy])
    old["spec"]["nodeSelector"] = {naming.POOL: "spot"}
    assert why(*nodes, pods=[old]).symptom != "earlier-admission"


def test_taints_of_node_conditions_are_not_to_be_tolerated() -> None:
    ill = {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}
    assert why(node("spot-0", "spot", ill)).symptom == "unschedulable"


def test_nodes_of_other_pools_do_not_hide_the_taint() -> None:
    nodes = [node("spot-0", "spot", TAINT), node("other-0", "other")]
    assert why(*nodes).symptom == "missing-toleration"


def test_labels_without_nodes_are_reported_as_affinity(text: Text) -> None:
    verdict = why(node("other-0", "other"), node("more-0", "more"))
    assert verdict.symptom == "strict-affinity"
    text(verdict.evidence)


def test_occupied_gpus_are_listed_with_their_pods(text: Text) -> None:
    other = pod("big-0")
    other["metadata"]["labels"] = other["metadata"]["labels"] | {naming.RUN_ID: "big-v1-1"}
    over = pod("old-0", "Succeeded")
    verdict = why(
        node("spot-0"),
        message="0/1 nodes are available: 1 Insufficient nvidia.com/gpu",
        others_pods=[other, over, stuck()],
    )
    assert verdict.symptom == "no-gpu-capacity"
    held = [line for line in verdict.evidence if "holds" in line]
    text(held)


def test_a_cluster_without_gpu_nodes_has_no_gpu_capacity(text: Text) -> None:
    scaling = event(stuck(), "NotTriggerScaleUp", "pod did not trigger scale-up: max size reached")
    verdict = why(events=[scaling])
    assert verdict.symptom == "no-gpu-capacity"
    text(verdict.evidence[-1])


def test_cordoned_nodes_are_reported_as_cordoned() -> None:
    assert why(node("spot-0", unschedulable=True)).symptom == "unschedulable"


@pytest.mark.parametrize(
    ("message", "symptom"),
    [
        ("2 Insufficient nvidia.com/gpu, 1 had untolerated taint {x: y}", "no-gpu-capacity"),
        ("3 node(s) had untolerated taint {dedicated: gpu}", "missing-toleration"),
        ("1 had untolerated taint {node.kubernetes.io/not-ready: }", "unschedulable"),
        ("3 node(s) didn't match Pod's node affinity/selector", "strict-affinity"),
        ("pod group is not ready", "unschedulable"),
    ],
)
def test_without_access_to_nodes_the_schedulers_message_is_used(message: str, symptom: str) -> None:
    assert why(message=message, hidden=frozenset({"nodes"})).symptom == symptom


def test_a_partly_scheduled_gang_waits_for_the_rest(text: Text) -> None:
    verdict = why(node("spot-0"), pods=[pod("a"), stuck("b")])
    assert verdict.symptom == "partial-gang"
    text(verdict.headline)
    text(verdict.remedy[0])


def test_a_partly_scheduled_gang_without_gang_scheduling_gets_a_remedy(text: Text) -> None:
    mine = run(spec={"template": {"spec": {"containers": []}}})
    mine["metadata"]["labels"].pop(naming.QUEUE_NAME)
    job = {"metadata": {"name": "hello-worker-0"}, "spec": {"parallelism": 3}}
    verdict = explain(snapshot(run=mine, jobs=[job], pods=[pod("a"), stuck("b")]))
    assert verdict.symptom == "partial-gang"
    text(verdict.headline)
    text(verdict.remedy[0])


def blind_node(name: str, age_s: float = 3600) -> Json:
    """A GPU node of the pool `spot` on which no device plugin runs."""
    found = node(name)
    found["metadata"]["labels"][naming.ACCELERATOR] = "nvidia"
    found["metadata"]["creationTimestamp"] = at(age_s)
    found["status"]["allocatable"].pop(naming.GPU)
    return found


def test_gpu_nodes_without_gpus_name_the_failing_device_plugin(
    text: Text,
) -> None:
    plugin = pod("plugin-x", "Pending")
    verdict = why(blind_node("spot-0"), node("spot-1"), gpu_pods=[plugin])
    assert verdict.symptom == "gpu-not-visible"
    text(verdict.headline)
    text(verdict.evidence)


def test_a_new_gpu_node_without_gpus_is_tolerated() -> None:
    assert why(blind_node("spot-0", age_s=60)).symptom != "gpu-not-visible"


def test_gpu_nodes_of_other_pools_are_not_the_cause() -> None:
    other = blind_node("x")
    other["metadata"]["labels"][naming.POOL] = "other"
    assert why(other, node("spot-0")).symptom == "unschedulable"


def test_missing_topology_in_kueue_is_explained_by_invisible_gpus() -> None:
    message = 'topology "zone-rack-host" doesn\'t allow to fit any of 2 pod(s)'
    taken = snapshot(workload=workload(waits(message)), nodes=[blind_node("spot-0")])
    assert explain(taken).symptom == "gpu-not-visible"


def test_nodes_without_gpus_are_counted(text: Text) -> None:
    assert gpu_not_visible(blind_node("a"))
    assert not gpu_not_visible(node("a"))
    text(node_rejections(pod_spec(), [blind_node("a")]))


def test_a_run_on_nodes_without_gpus_is_reported(text: Text) -> None:
    cpu = node("spot-0", "cpu")
    cpu["status"]["allocatable"].pop(naming.GPU)
    taken = snapshot(workload=runs_on(), pods=[pod("a"), pod("b")], nodes=[cpu])
    verdict = explain(taken)
    assert verdict.symptom == "cpu-node"
    text(verdict.evidence)
    mixed = snapshot(
        workload=runs_on(), pods=[pod("a"), _on("b", "spot-1")], nodes=[cpu, node("spot-1")]
    )
    assert explain(mixed).symptom == "running"


def _on(name: str, node_name: str) -> Json:
    found = pod(name)
    found["spec"]["nodeName"] = node_name
    return found


def test_only_unscheduled_pods_are_pending() -> None:
    taken: Snapshot = snapshot(pods=[pod("a"), stuck("b")])
    assert [p["metadata"]["name"] for p in scheduling.unschedulable_pods(taken)] == ["b"]
