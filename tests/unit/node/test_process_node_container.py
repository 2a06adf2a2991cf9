"""Backoff, and what is made of a container's end."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.node.api import Json
from sandbox.node.container import classify_exit, container_user, restart_delay
from sandbox.node.pod_worker import unsupported_features


@pytest.mark.parametrize(
    ("runs", "delay"),
    [
        ([], 0),
        ([1.0], 0),
        ([1.0, 1.0], 10),
        ([1.0] * 3, 20),
        ([1.0] * 9, 300),
        ([1.0] * 8 + [700.0], 0),
        ([1.0] * 8 + [700.0, 1.0], 10),
    ],
)
def test_the_first_restart_is_immediate_and_later_ones_wait_twice_as_long(
    runs: list[float], delay: float
) -> None:
    assert restart_delay(runs) == delay


def _exit(code: int, **more: Any) -> Json:
    return {"exit_code": code, "tail": "", "oom_kills": 0, **more}


@pytest.mark.parametrize(
    ("exit_", "killed", "code", "reason"),
    [
        (_exit(0), False, 0, "Completed"),
        (_exit(75), False, 75, "Error"),
        (_exit(137, oom_kills=1), False, 137, "OOMKilled"),
        (_exit(137, oom_kills=1), True, 137, "Error"),
        (_exit(1, oom_kills=1), False, 1, "Error"),
        (_exit(1, tail="bwrap: execvp x: No such file\n"), False, 128, "StartError"),
        (_exit(1, tail="up\nbwrap: execvp x\n"), False, 1, "Error"),
        (_exit(137, lost=True), False, 137, "Error"),
    ],
)
def test_termination_is_reported_with_its_reason(
    exit_: Json, killed: bool, code: int, reason: str
) -> None:
    assert classify_exit(exit_, killed=killed, stopped=False)[:2] == (code, reason)


def test_a_container_is_the_user_that_its_pod_asks_for() -> None:
    pod = {"spec": {"securityContext": {"runAsUser": 5, "runAsGroup": 6}}}
    assert container_user(pod, {}) == (5, 6)
    assert container_user(pod, {"securityContext": {"runAsUser": 7}}) == (7, 6)
    assert container_user({"spec": {"securityContext": {"runAsNonRoot": True}}}, {}) == (65532, 0)
    assert container_user({"spec": {}}, {}) == (0, 0)


def test_each_unsupported_feature_is_named() -> None:
    privileged = {"name": "c", "securityContext": {"privileged": True}, "volumeDevices": [{}]}
    hooked = {"name": "d", "lifecycle": {"postStart": {"exec": {}}, "preStop": {"exec": {}}}}
    volumes = [
        {"name": "h", "hostPath": {}},
        {"name": "n", "nfs": {}},
        {"name": "e", "emptyDir": {}},
    ]
    mounts = [{"name": "v", "subPathExpr": "$(X)"}]
    others = {"name": "e", "envFrom": [{}], "startupProbe": {"exec": {}}, "volumeMounts": mounts}
    containers = [privileged, hooked, others]
    found = unsupported_features(
        {"spec": {"hostPID": True, "containers": containers, "volumes": volumes}}
    )
    assert [line.split(":")[0] for line in found] == [
        "spec.hostPID",
        "volume h",
        "volume n",
        "container c",
        "container c",
        "container d",
        "container e",
        "container e",
        "container e",
    ]
    assert unsupported_features({"spec": {"containers": [{"name": "c"}]}}) == []
