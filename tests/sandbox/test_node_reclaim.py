"""Spot reclaims of process nodes, with notice and without, and the return of the node."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest

from sandbox.node.api import ApiError, Json, node_path, object_path
from sandbox.node.reclaim import reclaim, restore
from sandbox.reporting import SandboxError
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import (
    Kit,
    condition,
    log_text,
    node_manifest,
    processes_with,
    serving,
    terminated,
    until,
)

pytestmark = [pytest.mark.sandbox, pytest.mark.core, pytest.mark.long(12)]

POLITE = "trap 'echo asked; sleep 0.3; exit 75' TERM; echo up; while :; do sleep 0.05; done"
KEPT = {"finalizers": ["trainyard.dev/test"]}


@pytest.fixture(scope="module")
def kit(cluster: Cluster) -> Iterator[Kit]:
    with serving(cluster, "reclaim") as served:
        yield served


def _absent(kit: Kit, node: str) -> bool:
    try:
        kit.client.get(node_path(node))
        return False
    except ApiError as error:
        return error.not_found


def _back(kit: Kit, node: str) -> Json:
    assert restore(node, state=kit.cluster.state) == [node]
    return kit.await_node(node)


def test_with_notice_pods_are_evicted_and_shut_down_gracefully(kit: Kit) -> None:
    node = kit.nodes[0]
    kit.run("warned", POLITE, metadata=KEPT)
    pod = kit.await_line("warned", "up")
    log = kit.attempt(pod).log
    events: list[str] = []
    began = time.monotonic()
    reclaim(node, 300, on_event=events.append, state=kit.cluster.state)
    assert time.monotonic() - began < 240, "a drained node need not wait for the end of the notice"
    assert _absent(kit, node)
    ended = kit.pod("warned")
    kit.release("warned")
    assert terminated(ended)["exitCode"] == 75
    assert condition(ended, "DisruptionTarget")["reason"] == "EvictionByEvictionAPI"
    assert log_text(log) == "up\nasked\n"
    assert any("evicting" in line for line in events) and events[-1] == f"{node}: deleted"
    node_back = _back(kit, node)
    assert not node_back["spec"].get("unschedulable")
    kit.run("again", "echo back")
    assert kit.log(kit.await_phase("again", "Succeeded")) == "back\n"


def test_processes_that_ignore_sigterm_are_killed_after_the_notice(kit: Kit) -> None:
    marker = uuid.uuid4().hex
    script = f"sh -c 'trap \"\" TERM; echo up; sleep 600; :' {marker}"
    kit.run("deaf", "trap '' TERM; " + script, terminationGracePeriodSeconds=600, metadata=KEPT)
    kit.await_line("deaf", "up")
    began = time.monotonic()
    reclaim(kit.nodes[0], 2, state=kit.cluster.state)
    assert time.monotonic() - began >= 1.9
    assert not processes_with(marker)
    pod = kit.await_phase("deaf", "Failed")
    kit.release("deaf")
    assert condition(pod, "DisruptionTarget")["reason"] == "EvictionByEvictionAPI"
    assert terminated(pod)["exitCode"] == 137
    _back(kit, kit.nodes[0])


def test_idle_node_is_deleted_before_its_notice_is_over(kit: Kit) -> None:
    began = time.monotonic()
    reclaim(kit.nodes[1], 600, state=kit.cluster.state)
    assert time.monotonic() - began < 600
    _back(kit, kit.nodes[1])


def test_without_notice_all_processes_are_killed_without_sigterm(kit: Kit) -> None:
    marker = uuid.uuid4().hex
    kit.run(
        "struck", f"trap 'echo asked' TERM; sh -c 'echo up; sleep 600; :' {marker}", metadata=KEPT
    )
    pod = kit.await_line("struck", "up")
    log = kit.attempt(pod).log
    reclaim(kit.nodes[0], 0, state=kit.cluster.state)
    assert not processes_with(marker)
    assert log_text(log) == "up\n"
    ended = kit.await_phase("struck", "Failed")
    assert condition(ended, "DisruptionTarget")["reason"] == "DeletionByPodGC"
    assert ended["metadata"]["deletionTimestamp"]
    kit.release("struck")
    kit.await_gone("struck")
    _back(kit, kit.nodes[0])


def test_job_replaces_a_reclaimed_pod_without_counting_a_failure(kit: Kit) -> None:
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    job = {
        "podFailurePolicy": {"rules": [rule]},
        "backoffLimit": 0,
        "template": {"spec": _job_pod(kit)},
    }
    path = "/apis/batch/v1"
    kit.create("jobs", "survivor", {"spec": job}, path)
    started = until(lambda: _job_pods(kit), "the job has a pod")[0]
    first = kit.await_phase(started["metadata"]["name"], "Running")
    node = first["spec"]["nodeName"]
    reclaim(node, 0, state=kit.cluster.state)

    def replaced() -> Json | None:
        pods = [p for p in _job_pods(kit) if p["metadata"]["uid"] != first["metadata"]["uid"]]
        return next((p for p in pods if p.get("status", {}).get("phase") == "Running"), None)

    second = until(replaced, "another pod of the job runs")
    assert second["spec"]["nodeName"] != node
    status = kit.client.get(f"{path}/namespaces/{kit.namespace}/jobs/survivor")["status"]
    assert not status.get("failed") and not status.get("conditions")
    kit.client.delete(
        f"{path}/namespaces/{kit.namespace}/jobs/survivor", {"propagationPolicy": "Background"}
    )
    _back(kit, node)


def _job_pod(kit: Kit) -> Json:
    match = {"key": "kubernetes.io/hostname", "operator": "In", "values": kit.nodes}
    required = {"nodeSelectorTerms": [{"matchExpressions": [match]}]}
    image = "sandbox.trainyard.dev/host@sha256:" + "0" * 64
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        "containers": [{"name": "main", "image": image, "command": ["sleep", "600"]}],
    }


def _job_pods(kit: Kit) -> list[Json]:
    found: list[Json] = kit.client.get(
        object_path("/api/v1", kit.namespace, "pods"), labelSelector="job-name=survivor"
    )["items"]
    return found


def test_restored_node_keeps_its_field_managers(kit: Kit) -> None:
    name = "reclaim-applied"
    manifest = node_manifest(name)
    manifest["spec"] = {"taints": [{"key": "spot", "value": "true", "effect": "NoSchedule"}]}
    apply = {"fieldManager": "other-manager", "force": "true"}
    kit.client.patch(node_path(name), manifest, "apply", **apply)
    try:
        before = kit.await_node(name)
        reclaim(name, 0, state=kit.cluster.state)
        after = _back(kit, name)

        def owned(node: Json) -> Json:
            entries = node["metadata"]["managedFields"]
            return next(e["fieldsV1"] for e in entries if e["manager"] == "other-manager")

        assert owned(after) == owned(before)
        assert after["status"]["capacity"] == before["status"]["capacity"]
        assert [t["key"] for t in after["spec"]["taints"]] == ["spot"]
        del manifest["metadata"]["labels"]["kubernetes.io/hostname"]
        changed = kit.client.patch(node_path(name), manifest, "apply", **apply)
        assert "kubernetes.io/hostname" not in changed["metadata"]["labels"]
    finally:
        kit.client.delete(node_path(name))


def test_unknown_node_error_lists_existing_nodes(kit: Kit) -> None:
    with pytest.raises(SandboxError, match=f"'nowhere' does not exist; nodes: .*{kit.nodes[0]}"):
        reclaim("nowhere", 0, state=kit.cluster.state)
    with pytest.raises(SandboxError, match="not reclaimed"):
        restore("nowhere", state=kit.cluster.state)
    assert restore("all", state=kit.cluster.state) == []
