"""Status of a process node, its probes, and the volumes that it provides."""

from __future__ import annotations

from sandbox.node import heartbeat
from sandbox.node.probes import ProbeCounter, resolve_port

PLENTY = 2**40


def test_pressure_is_reported_and_a_failing_runtime_makes_the_node_unready() -> None:
    short = heartbeat.pressure_conditions(2**20, 2**20)
    conditions = heartbeat.node_conditions([], short, "bwrap not found; install bubblewrap", 0.0)
    found = {c["type"]: c for c in conditions}
    assert found["DiskPressure"]["message"] == "1 MiB are free on the sandbox's disk"
    assert found["MemoryPressure"]["status"] == "True"
    assert (found["Ready"]["status"], found["Ready"]["message"]) == (
        "False",
        "bwrap not found; install bubblewrap",
    )


def test_a_heartbeat_does_not_change_the_transition_time() -> None:
    first = heartbeat.node_conditions([], {}, "", 0.0)
    second = heartbeat.node_conditions(first, {}, "", 60.0)
    assert {c["lastTransitionTime"] for c in second} == {"1970-01-01T00:00:00Z"}
    assert {c["lastHeartbeatTime"] for c in second} == {"1970-01-01T00:01:00Z"}
    third = heartbeat.node_conditions(second, {}, "broken", 120.0)
    changed = [c["type"] for c in third if c["lastTransitionTime"] == "1970-01-01T00:02:00Z"]
    assert changed == ["Ready"]


def test_a_probe_changes_its_verdict_only_at_its_threshold() -> None:
    tally = ProbeCounter({"failureThreshold": 2, "successThreshold": 1}, passed=True)
    assert [tally.count(ok) for ok in (False, True, False, False)] == [False, False, False, True]
    assert not tally.passed
    assert tally.count(True) and tally.passed


def test_a_probe_finds_a_port_by_its_name() -> None:
    container = {"ports": [{"name": "web", "containerPort": 8080}]}
    assert resolve_port({"httpGet": {"port": "web"}}, container) == {"httpGet": {"port": 8080}}
    assert resolve_port({"tcpSocket": {"port": 1}}, container) == {"tcpSocket": {"port": 1}}
