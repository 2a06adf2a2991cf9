"""Crashes of the node agent: pods keep running, and the next agent reports what happened meanwhile."""

from __future__ import annotations

import signal
import subprocess
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox import process
from sandbox.node.api import node_path, pod_path
from sandbox.node.runtime import stop_all
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

pytestmark = [pytest.mark.sandbox, pytest.mark.long(23)]

WAITER = "trap 'echo asked' TERM; echo up; while ! test -e /v/go; do sleep 0.05; done; exit 6"
VOLUME: dict[str, Any] = {"volumes": [{"name": "v", "emptyDir": {}}]}
MOUNT = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}


@pytest.fixture(scope="module")
def kit(cluster: Cluster) -> Iterator[Kit]:
    with serving(cluster, "agent") as served:
        yield served


def _service(kit: Kit, name: str) -> process.Process:
    pid_file = kit.cluster.state.pids / f"{name}.json"
    return until(lambda: process.load(pid_file), f"{name} has a pid file")


def _kill_agent(kit: Kit) -> process.Process:
    agent = _service(kit, "node")
    agent.send(signal.SIGKILL)
    assert agent.wait(10)
    return agent


def _await_new(kit: Kit, name: str, old: process.Process) -> None:
    until(lambda: _service(kit, name).pid != old.pid, f"{name} was started again")


def _waiter(kit: Kit, name: str, **spec: Any) -> None:
    kit.run(name, main={"command": ["sh", "-c", WAITER], **MOUNT}, **VOLUME, **spec)
    kit.await_line(name, "up")


def test_restarted_agent_adopts_running_pods(kit: Kit) -> None:
    _waiter(kit, "kept")
    pod = kit.await_phase("kept", "Running")
    before = kit.attempt(pod).run()
    _await_new(kit, "node", _kill_agent(kit))
    (kit.folder(pod).volumes / "v" / "go").touch()
    after = kit.await_phase("kept", "Failed")
    assert terminated(after)["exitCode"] == 6
    assert container_status(after)["restartCount"] == 0
    assert kit.attempt(after).run() == before
    assert after["status"]["podIP"] == pod["status"]["podIP"]


def test_exit_while_no_agent_runs_is_reported_by_the_next_agent(kit: Kit) -> None:
    _waiter(kit, "alone")
    pod = kit.await_phase("alone", "Running")
    _kill_agent(kit)
    (kit.folder(pod).volumes / "v" / "go").touch()
    until(lambda: kit.attempt(pod).exit(), "the container has ended")
    after = kit.await_phase("alone", "Failed")
    assert terminated(after)["exitCode"] == 6


def test_agent_killed_during_a_grace_period_sends_sigterm_once_and_sigkill_in_time(
    kit: Kit,
) -> None:
    marker = {"finalizers": ["trainyard.dev/test"]}
    _waiter(kit, "ending", terminationGracePeriodSeconds=4, metadata=marker)
    pod = kit.await_phase("ending", "Running")
    log = kit.attempt(pod).log
    kit.delete("ending")
    kit.await_line("ending", "asked")
    _await_new(kit, "node", _kill_agent(kit))
    after = kit.await_phase("ending", "Failed")
    kit.release("ending")
    assert terminated(after)["exitCode"] == 137
    assert log_text(log) == "up\nasked\n"


def test_pod_deleted_while_no_agent_runs_is_stopped_by_the_next_agent(kit: Kit) -> None:
    marker = uuid.uuid4().hex
    kit.run("orphan", f"sh -c 'echo up; sleep 600; :' {marker}")
    pod = kit.await_line("orphan", "up")
    _kill_agent(kit)
    kit.delete("orphan", 0)
    until(lambda: not processes_with(marker), "its processes are gone")
    until(lambda: not kit.folder(pod).path.exists(), "its folder is gone")


def test_exit_while_the_api_server_is_unavailable_is_reported_later(kit: Kit) -> None:
    _waiter(kit, "unheard")
    pod = kit.await_phase("unheard", "Running")
    server = _service(kit, "apiserver")
    server.send(signal.SIGKILL)
    assert server.wait(10)
    (kit.folder(pod).volumes / "v" / "go").touch()
    _await_new(kit, "apiserver", server)
    after = kit.await_phase("unheard", "Failed")
    assert terminated(after)["exitCode"] == 6


def test_stop_all_stops_only_containers_of_this_sandbox(kit: Kit) -> None:
    marker = uuid.uuid4().hex
    for name in ("stopped-a", "stopped-b"):
        script = f"setsid sh -c 'trap \"\" TERM; echo up; sleep 600; :' {marker} & wait"
        kit.run(name, script)
        kit.await_line(name, "up")
    stranger = subprocess.Popen(["sh", "-c", "sleep 600; :", f"not-{marker}"])
    try:
        assert stop_all(kit.cluster.state) >= 2
        assert not processes_with(marker)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()
    pod = kit.await_phase("stopped-a", "Failed")
    assert condition(pod, "DisruptionTarget")["reason"] == "TerminationByKubelet"


def test_status_written_by_other_controllers_is_corrected(kit: Kit) -> None:
    kit.run("doubted", "sleep 600")
    kit.await_pod("doubted", lambda p: condition(p, "Ready").get("status") == "True", "is ready")
    doubt = {"type": "Ready", "status": "False", "reason": "NodeStatusUnknown"}
    path = pod_path(kit.namespace, "doubted", "status")
    kit.client.patch(path, {"status": {"conditions": [doubt]}}, "strategic")
    kit.await_pod("doubted", lambda p: condition(p, "Ready").get("status") == "True", "is ready")
    unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
    path = node_path(kit.nodes[0], "status")
    kit.client.patch(path, {"status": {"conditions": [unknown]}}, "strategic")
    kit.await_node(kit.nodes[0])
    kit.delete("doubted", 1)
