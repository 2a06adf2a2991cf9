"""Termination of pods on process nodes: grace period, kill, eviction, and no leftover processes."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Iterator

import pytest

from sandbox.node.api import Json, pod_path
from sandbox.process import Process
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import (
    Kit,
    condition,
    container_status,
    log_text,
    processes_with,
    serving,
    terminated,
    until,
)

pytestmark = pytest.mark.sandbox

KEPT = {"finalizers": ["trainyard.dev/test"]}
"""Keeps the object of a deleted pod, so that its last status can be read."""
POLITE = "trap 'echo asked; exit 75' TERM; echo up; while :; do sleep 0.05; done"


@pytest.fixture(scope="module")
def kit(cluster: Cluster) -> Iterator[Kit]:
    with serving(cluster, "endings") as served:
        yield served


def _final_pod(kit: Kit, name: str) -> Json:
    pod = kit.await_pod(
        name, lambda p: p["status"]["phase"] in ("Failed", "Succeeded"), "has ended"
    )
    kit.release(name)
    kit.await_gone(name)
    return pod


def test_deleted_pod_gets_sigterm_and_its_exit_code_is_reported(kit: Kit) -> None:
    kit.run("polite", POLITE, metadata=KEPT)
    kit.await_line("polite", "up")
    kit.delete("polite")
    pod = _final_pod(kit, "polite")
    assert pod["status"]["phase"] == "Failed"
    assert terminated(pod)["exitCode"] == 75


def test_pod_that_ignores_sigterm_is_killed_with_its_grandchildren_after_the_grace_period(
    kit: Kit,
) -> None:
    marker = uuid.uuid4().hex
    script = f"trap '' TERM; setsid sh -c 'trap \"\" TERM; echo up; sleep 600; :' {marker} & wait"
    kit.run("deaf", script + "; wait", metadata=KEPT, terminationGracePeriodSeconds=1)
    kit.await_line("deaf", "up")
    assert processes_with(marker)
    began = time.monotonic()
    kit.delete("deaf")
    pod = _final_pod(kit, "deaf")
    assert terminated(pod)["exitCode"] == 137
    assert 0.9 <= time.monotonic() - began < 60
    assert not processes_with(marker)


def test_pre_stop_hook_runs_before_sigterm(kit: Kit) -> None:
    hook = {
        "preStop": {"exec": {"command": ["sh", "-c", "sleep 0.2; echo hook $X > /proc/1/fd/1"]}}
    }
    main = {"lifecycle": hook, "env": [{"name": "X", "value": "of x"}]}
    kit.run("hooked", POLITE, main=main, metadata=KEPT)
    pod = kit.await_line("hooked", "up")
    log = kit.attempt(pod).log
    kit.delete("hooked")
    _final_pod(kit, "hooked")
    assert log_text(log) == "up\nhook of x\nasked\n"


def test_forced_deletion_kills_immediately(kit: Kit) -> None:
    marker = uuid.uuid4().hex
    kit.run("forced", f"sh -c 'trap \"\" TERM; echo up; sleep 600; :' {marker}")
    kit.await_line("forced", "up")
    kit.delete("forced", 0)
    kit.await_gone("forced")
    until(lambda: not processes_with(marker), "its processes are gone")


def test_an_evicted_pod_keeps_its_disruption_condition_and_its_exit_code(kit: Kit) -> None:
    kit.run("evicted", POLITE, metadata=KEPT)
    kit.await_line("evicted", "up")
    body = {"apiVersion": "policy/v1", "kind": "Eviction"}
    metadata = {"name": "evicted", "namespace": kit.namespace}
    kit.client.create(
        pod_path(kit.namespace, "evicted", "eviction"), {**body, "metadata": metadata}
    )
    pod = _final_pod(kit, "evicted")
    assert condition(pod, "DisruptionTarget")["reason"] == "EvictionByEvictionAPI"
    assert terminated(pod)["exitCode"] == 75


def test_completed_pod_leaves_no_process(kit: Kit) -> None:
    marker = uuid.uuid4().hex
    kit.run("leaver", f"setsid sh -c 'sleep 600; :' {marker} & sleep 0.2; exit 0")
    kit.await_phase("leaver", "Succeeded")
    until(lambda: not processes_with(marker), "its processes are gone")


def test_a_pod_whose_shim_is_killed_dies_and_is_reported_as_killed(kit: Kit) -> None:
    marker = uuid.uuid4().hex
    kit.run("unkept", f"sh -c 'echo up; sleep 600; :' {marker}")
    pod = kit.await_line("unkept", "up")
    run = kit.attempt(pod).run() or {}
    assert Process(run["shim_pid"], run["shim_start"]).send(signal.SIGKILL)
    pod = kit.await_phase("unkept", "Failed")
    assert terminated(pod)["exitCode"] == 137
    until(lambda: not processes_with(marker), "its processes are gone")


def test_status_contains_resource_limits(kit: Kit) -> None:
    resources = {"limits": {"nvidia.com/gpu": "1", "cpu": "1"}}
    kit.run("limited", "exit 0", main={"resources": resources}, node=1)
    status = container_status(kit.await_phase("limited", "Succeeded"))
    assert status["allocatedResources"] == {"nvidia.com/gpu": "1", "cpu": "1"}


def test_a_job_sees_the_exit_code_of_its_pod(kit: Kit) -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [78]}}
    main = {"name": "main", "image": "sandbox.trainyard.dev/host@sha256:" + "0" * 64}
    spec = {
        "restartPolicy": "Never",
        "nodeSelector": {"kubernetes.io/hostname": kit.nodes[0]},
        "containers": [{**main, "command": ["sh", "-c", "exit 78"]}],
    }
    job = {"podFailurePolicy": {"rules": [rule]}, "template": {"spec": spec}, "backoffLimit": 5}
    path = "/apis/batch/v1"
    kit.create("jobs", "bad-config", {"spec": job}, path)
    item = until(
        lambda: next(
            (
                c
                for c in kit.client.get(f"{path}/namespaces/{kit.namespace}/jobs/bad-config")
                .get("status", {})
                .get("conditions", [])
                if c["type"] == "Failed"
            ),
            None,
        ),
        "the job has failed",
    )
    assert item["reason"] == "PodFailurePolicy"
