"""Pods on process nodes of the real cluster: a container's environment and its reported status."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import example_environment, paths
from sandbox.node.images import REGISTRY
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import (
    HOST,
    Kit,
    condition,
    container_status,
    processes_with,
    serving,
    terminated,
    until,
    waiting_reason,
)
from training.source import digest

pytestmark = [pytest.mark.sandbox, pytest.mark.long(35)]


@pytest.fixture(scope="module")
def kit(cluster: Cluster) -> Iterator[Kit]:
    with serving(cluster, "pods") as served:
        yield served


DUMP = """
import json, os, pathlib
tree = {}
for top in ("/etc/trainyard", "/var/run/secrets/tokens", "/pod", "/usr/share/nested/deep"):
    for path in sorted(pathlib.Path(top).rglob("*")):
        if path.is_file():
            tree[str(path)] = path.read_text()
print(json.dumps({"env": dict(os.environ), "files": tree, "uid": os.getuid(), "pid": os.getpid()}))
"""


def test_container_sees_only_its_own_environment_and_files(kit: Kit) -> None:
    kit.create("configmaps", "cm", {"data": {"run.json": "{}", "LEVEL": "3"}})
    kit.create("secrets", "keys", {"stringData": {"token": "s3cret"}})
    main = {
        "command": ["python3", "-c", DUMP, "$(INDEX)"],
        "env": [
            {"name": "INDEX", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['ix']"}}},
            {"name": "TWICE", "value": "$(INDEX)-$(INDEX) $$(INDEX) $(ABSENT)"},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
            {
                "name": "MAYBE",
                "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "x", "optional": True}},
            },
        ],
        "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}},
        "securityContext": {"runAsUser": 1234, "runAsNonRoot": True},
        "volumeMounts": [
            {"name": "cm", "mountPath": "/etc/trainyard", "readOnly": True},
            {"name": "token", "mountPath": "/var/run/secrets/tokens"},
            {"name": "pod", "mountPath": "/pod"},
            {"name": "cm", "mountPath": "/usr/share/nested/deep"},
        ],
    }
    token = {"path": "t", "expirationSeconds": 600}
    label = [{"path": "label", "fieldRef": {"fieldPath": "metadata.labels['ix']"}}]
    volumes = [
        {"name": "cm", "configMap": {"name": "cm", "items": [{"key": "run.json", "path": "r"}]}},
        {"name": "token", "projected": {"sources": [{"serviceAccountToken": token}]}},
        {"name": "pod", "downwardAPI": {"items": label}},
    ]
    kit.run("full", main=main, volumes=volumes, metadata={"labels": {"ix": "7"}})
    pod = kit.await_phase("full", "Succeeded")
    seen = json.loads(kit.log(pod))
    env = seen["env"]
    assert env["INDEX"] == "7" and env["TWICE"] == "7-7 $(INDEX) $(ABSENT)"
    assert env["NODE"] == kit.nodes[0] and env["IP"] == pod["status"]["podIP"]
    assert env["TOKEN"] == "s3cret"
    own = {"PATH", "HOME", "LANG", "HOSTNAME", "PWD", "LC_CTYPE", "SHLVL", "_"}
    named = {"INDEX", "TWICE", "NODE", "IP", "TOKEN"}
    assert {n for n in env if not n.startswith("KUBERNETES_")} <= own | named
    files = seen["files"]
    assert files["/etc/trainyard/r"] == files["/usr/share/nested/deep/r"] == "{}"
    assert files["/var/run/secrets/tokens/t"].count(".") == 2
    assert files["/pod/label"] == "7"
    assert seen["uid"] == 1234 and seen["pid"] == 1


def test_environment_variables_may_be_empty(kit: Kit) -> None:
    empty = [{"name": name, "value": ""} for name in ("AAA", "ZZZ")]
    main = {"command": ["sh", "-c", 'echo "${AAA-unset}${ZZZ-unset}."'], "env": empty}
    kit.run("empty-variable", main=main)
    assert kit.log(kit.await_phase("empty-variable", "Succeeded")) == ".\n"


def test_container_cannot_see_the_users_home_or_the_sandbox(kit: Kit, tmp_path: Path) -> None:
    canary = f"trainyard-canary-{uuid.uuid4().hex}"
    home = Path.home() / f".{canary}"
    home.write_text(canary)
    project = kit.cluster.state.home / canary
    project.write_text(canary)
    try:
        search = f"find / -xdev -name '*{canary}' 2>/dev/null; ls {home} {project}; cat /etc/shadow"
        script = f"{search}; ls -d {kit.cluster.kubeconfig} {kit.cluster.state.pki}; ls /proc; :"
        kit.run("hidden", script)
        log = kit.log(kit.await_phase("hidden", "Succeeded"))
    finally:
        home.unlink()
        project.unlink()
    lines = log.splitlines()
    assert not [line for line in lines if canary in line and "No such file" not in line]
    assert len([line for line in lines if "No such file" in line]) == 5
    assert len([line for line in lines if line.isdigit()]) <= 3  # its own processes only


def test_init_containers_run_in_order_before_the_main_container(kit: Kit) -> None:
    share = {"volumeMounts": [{"name": "share", "mountPath": "/share"}]}

    def step(name: str) -> dict[str, object]:
        command = ["sh", "-c", f"echo {name} >> /share/order"]
        return {"name": name, "image": HOST, "command": command, **share}

    kit.run(
        "ordered",
        main={"command": ["sh", "-c", "cat /share/order"], **share},
        initContainers=[step("first"), step("second")],
        volumes=[{"name": "share", "emptyDir": {}}],
    )
    pod = kit.await_phase("ordered", "Succeeded")
    assert kit.log(pod).split() == ["first", "second"]
    assert terminated(pod, "second")["reason"] == "Completed"
    assert condition(pod, "Initialized")["status"] == "True"


def test_failing_init_container_fails_the_pod_before_other_containers_start(kit: Kit) -> None:
    bad = {"name": "bad", "image": HOST, "command": ["sh", "-c", "exit 4"]}
    kit.run("uninit", "echo started", initContainers=[bad])
    pod = kit.await_phase("uninit", "Failed")
    assert terminated(pod, "bad")["exitCode"] == 4
    assert waiting_reason(pod) == "PodInitializing"
    assert not kit.folder(pod).attempts("main")


def test_sidecar_runs_alongside_the_main_container_and_does_not_keep_the_pod_alive(
    kit: Kit,
) -> None:
    command = ["sh", "-c", "trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done"]
    side = {"name": "side", "image": HOST, "restartPolicy": "Always", "command": command}
    kit.run("sided", "echo done", initContainers=[side])
    pod = kit.await_phase("sided", "Succeeded")
    assert kit.log(pod, "side") == "up\n"
    assert terminated(pod, "side")["exitCode"] == 0


@pytest.mark.parametrize(
    ("script", "phase", "code", "reason"),
    [
        ("exit 0", "Succeeded", 0, "Completed"),
        ("exit 75", "Failed", 75, "Error"),
        ("python3 -c 'import os; os.abort()'; exit $?", "Failed", 134, "Error"),
    ],
)
def test_the_exit_code_decides_the_phase(
    kit: Kit, script: str, phase: str, code: int, reason: str
) -> None:
    name = f"exit-{code}"
    kit.run(name, script, node=1)
    pod = kit.await_phase(name, phase)
    assert (terminated(pod)["exitCode"], terminated(pod)["reason"]) == (code, reason)
    assert terminated(pod)["startedAt"] <= terminated(pod)["finishedAt"]
    assert condition(pod, "Ready")["status"] == "False"


def test_missing_command_is_a_start_error(kit: Kit) -> None:
    kit.run("absent", main={"command": ["/no/such/program"]})
    ended = terminated(kit.await_phase("absent", "Failed"))
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert "/no/such/program" in ended["message"]


def test_on_failure_restarts_until_success_and_keeps_the_previous_log(kit: Kit) -> None:
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    script = "echo try; test -e /v/again && exit 0; touch /v/again; exit 5"
    kit.run(
        "retry",
        main={"command": ["sh", "-c", script], **mount},
        volumes=[{"name": "v", "emptyDir": {"medium": "Memory"}}],
        restartPolicy="OnFailure",
    )
    status = container_status(kit.await_phase("retry", "Succeeded"))
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 5
    assert kit.kubectl("logs", "retry", "--previous").stdout == "try\n"


def test_repeatedly_failing_container_is_in_crash_loop_back_off(kit: Kit) -> None:
    kit.run("crash", "exit 1", restartPolicy="Always")
    pod = kit.await_pod("crash", lambda p: waiting_reason(p) == "CrashLoopBackOff", "backs off")
    assert pod["status"]["phase"] == "Running"
    assert container_status(pod)["lastState"]["terminated"]["exitCode"] == 1
    kit.delete("crash")
    kit.await_gone("crash")


def test_the_termination_message_is_reported(kit: Kit) -> None:
    kit.run("message", "echo no such dataset > /dev/termination-log; exit 78")
    assert terminated(kit.await_phase("message", "Failed"))["message"] == "no such dataset\n"


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ("docker.io/library/busybox@sha256:" + "a" * 64, "process nodes pull nothing"),
        ("sandbox.trainyard.dev/host:latest", "not pinned"),
        ("sandbox.trainyard.dev/trainer@sha256:" + "b" * 64, "pulumi up"),
    ],
)
def test_unavailable_image_is_reported_as_a_pull_error(kit: Kit, image: str, message: str) -> None:
    name = "image-" + str(abs(hash(image)))[:6]
    kit.run(name, main={"image": image})
    pod = kit.await_pod(name, lambda p: waiting_reason(p) == "ErrImagePull", "cannot be pulled")
    assert message in container_status(pod)["state"]["waiting"]["message"]
    until(lambda: any(message in event for event in kit.events(name)), "an event reports it")
    kit.delete(name, 0)


def test_the_image_of_the_examples_has_their_packages_and_the_trainers_pytorch(kit: Kit) -> None:
    example_environment.ensure(print)
    image = f"{REGISTRY}/examples@sha256:{digest(paths.PROJECT, 'examples')}"
    found = "import importlib.metadata as m; print(m.version('deepspeed'), m.version('torch'))"
    kit.run("examples", main={"image": image, "command": ["python", "-c", found]})
    pod = kit.await_phase("examples", "Succeeded")
    assert kit.log(pod).startswith("0.19.8 2.")


def test_unsupported_pod_features_are_rejected_with_a_message(kit: Kit) -> None:
    volumes = [{"name": "host", "hostPath": {"path": "/"}}]
    kit.run("refused", "true", volumes=volumes)
    status = kit.await_phase("refused", "Failed")["status"]
    assert status["reason"] == "Unsupported"
    assert "volume host: hostPath: not supported" in status["message"]


def test_pod_waits_for_a_missing_config_map(kit: Kit) -> None:
    env = [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "later", "key": "x"}}}]
    mount = [{"name": "v", "mountPath": "/v"}]
    kit.run(
        "patient",
        main={"command": ["cat", "/v/x"], "volumeMounts": mount},
        volumes=[{"name": "v", "configMap": {"name": "later"}}],
    )
    kit.run("config-error", main={"command": ["true"], "env": env})
    kit.await_pod(
        "config-error",
        lambda p: waiting_reason(p) == "CreateContainerConfigError",
        "reports what is missing",
    )
    assert kit.pod("patient")["status"]["phase"] == "Pending"
    kit.create("configmaps", "later", {"data": {"x": "came"}})
    assert kit.log(kit.await_phase("patient", "Succeeded")) == "came"
    kit.delete("config-error", 0)


def test_pod_that_exceeds_its_deadline_fails(kit: Kit) -> None:
    marker = uuid.uuid4().hex
    short: dict[str, Any] = {"activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": 1}
    kit.run("late", f"sh -c 'sleep 600; :' {marker}", **short)
    status = kit.await_phase("late", "Failed")["status"]
    assert status["reason"] == "DeadlineExceeded"
    until(lambda: not processes_with(marker), "its processes are gone")


def test_pod_is_ready_when_its_readiness_probe_succeeds(kit: Kit) -> None:
    probe = {"exec": {"command": ["test", "-e", "/v/ok"]}, "periodSeconds": 1}
    mount = [{"name": "v", "mountPath": "/v"}]
    script = "while ! test -e /v/go; do sleep 0.1; done; touch /v/ok; sleep 600"
    main = {"command": ["sh", "-c", script], "readinessProbe": probe, "volumeMounts": mount}
    kit.run("probed", main=main, volumes=[{"name": "v", "emptyDir": {}}])
    pod = kit.await_phase("probed", "Running")
    assert condition(pod, "Ready")["status"] == "False"
    (kit.folder(pod).volumes / "v" / "go").touch()
    kit.await_pod("probed", lambda p: condition(p, "Ready").get("status") == "True", "is ready")
    kit.delete("probed", 1)
