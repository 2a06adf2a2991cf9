"""`trainyard dev` on the real API server, Kueue and a process node, as members of a team."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.domain import naming
from infra.domain.published_record import to_text
from infra.domain.storage import Volume
from infra.queueing import kueue, priorities
from infra.sites.simulated import storage
from infra.tenancy import team, volumes
from ops import __main__ as ops
from ops.dev.session import ACTIVITY
from sandbox.paths import PROJECT
from sandbox.ports import free_port
from tests.sandbox.conftest import Cluster
from tests.sandbox.escape_kit import GuardedCluster, queue_of, standing
from tests.sandbox.escape_objects import IMAGE, RESEARCH, platform, values
from tests.sandbox.node_kit import until

pytestmark = [pytest.mark.sandbox, pytest.mark.long(16)]

NAMESPACE = naming.namespace(RESEARCH)


@dataclass
class Member:
    """A user with a kubeconfig of their own."""

    kubeconfig: Path
    capfd: pytest.CaptureFixture[str]

    def trainyard(self, *words: str) -> tuple[int, str]:
        return self.run("dev", *words)

    def run(self, group: str, command: str, *rest: str) -> tuple[int, str]:
        own = ["--kubeconfig", str(self.kubeconfig), "--team", RESEARCH]
        self.capfd.readouterr()
        code = ops.main([group, command, *own, *rest])
        found = self.capfd.readouterr()
        return code, found.out + found.err

    def kubectl(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["kubectl", f"--kubeconfig={self.kubeconfig}", "-n", NAMESPACE, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def guarded(cluster: Cluster) -> Iterator[GuardedCluster]:
    with standing(cluster) as guarded:
        volume = Volume(size="1Gi", storage_class=naming.SIMULATED_STORAGE_CLASS)
        claims = (naming.CHECKPOINTS_CLAIM, naming.DATASETS_CLAIM)
        cluster.apply(
            team.platform_record(RESEARCH, to_text(platform(), RESEARCH, {"trainer": IMAGE})),
            # Objects of a stack that runs without volumes and their own priority do not need.
            storage.storage_class(),
            *(kueue.workload_priority_class(name) for name in priorities.PRIORITIES),
            *(volumes.claim(RESEARCH, claim, volume) for claim in claims),
        )
        with queue_of(guarded, RESEARCH, nodes="process"):
            yield guarded
            cluster.kubectl("delete", "jobs", "-n", NAMESPACE, "--all", "--timeout=180s")
        shared = f"storageclass/{naming.SIMULATED_STORAGE_CLASS}"
        own = [f"workloadpriorityclass/{name}" for name in priorities.PRIORITIES]
        cluster.kubectl("delete", shared, *own, "--timeout=180s")


@pytest.fixture
def member(
    guarded: GuardedCluster,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[str], Member]:
    monkeypatch.setenv("PATH", guarded.cluster.env["PATH"])

    def make(name: str) -> Member:
        file, group = tmp_path / f"{name}.yaml", naming.group(RESEARCH, "researcher")
        return Member(guarded.cluster.kubeconfig_of(file, name, group), capfd)

    return make


def _listed(one: Member) -> str:
    code, text = one.trainyard("list")
    assert code == 0, text
    return text


@pytest.mark.long(30)
def test_a_dev_pod_runs_is_its_owners_and_keeps_the_home(
    guarded: GuardedCluster, member: Callable[[str], Member]
) -> None:
    ada, bob = member("ada"), member("bob")
    code, text = ada.trainyard("start", "--gpus", "1", "--hours", "1")
    assert code == 0 and "main: running" in text, text
    code, text = ada.trainyard(
        "shell", "--", "sh", "-c", "cd; echo made > kept; pwd; id -u; exit 3"
    )
    assert code == 3 and "/checkpoints/home/ada-" in text and "\n1000\n" in text, text
    code, text = ada.trainyard("start", "--no-wait")
    assert code == 2 and "dev pod main: exists" in text

    _port_is_forwarded(ada)
    listed = _listed(bob)
    assert "main" in listed and "ada" in listed and "running" in listed
    assert bob.trainyard("shell")[0] == 2
    [pod] = bob.kubectl("get", "pods", "-l", f"{naming.DEV}=true", "-o", "name").stdout.split()
    refused = bob.kubectl("exec", pod, "--", "true")
    assert refused.returncode and "this dev pod is another user's" in refused.stderr
    refused = bob.kubectl("delete", "job", _job(ada))
    assert refused.returncode and "launched by another user" in refused.stderr

    # What Kueue does to make room for a run.
    workloads = guarded.cluster.kubectl("get", "workloads", "-n", NAMESPACE, "-o", "name").split()
    for workload in workloads:
        guarded.cluster.kubectl(
            "patch", workload, "-n", NAMESPACE, "--type=merge", "-p", '{"spec":{"active":false}}'
        )
    until(lambda: "ended" in _listed(ada) and "preempted" in _listed(ada), "it has ended")
    for workload in workloads:
        guarded.cluster.kubectl(
            "patch", workload, "-n", NAMESPACE, "--type=merge", "-p", '{"spec":{"active":true}}'
        )
    until(lambda: "preempted by a run" in _listed(ada), "it does not come back unattended")

    code, text = ada.trainyard("start", "--hours", "1", "--idle-minutes", "0.1")
    assert code == 0, text
    code, text = ada.trainyard("shell", "--", "sh", "-c", "cat $HOME/kept")
    assert (code, text) == (0, "made\n")
    until(lambda: "idle for 6 seconds" in _listed(ada), "it ends when it is idle")

    code, text = ada.trainyard("start", "--hours", "1", "--no-wait")
    assert code == 0, text
    code, text = ada.trainyard("stop")
    assert code == 0 and "home folder is kept" in text
    until(lambda: "no dev pods" in _listed(ada), "it is gone")


def _port_is_forwarded(one: Member) -> None:
    """A server on the pod's loopback answers through `dev port`, and that counts as use."""
    served, local = free_port(), free_port()
    server = f"nohup python3 -m http.server {served} --bind 127.0.0.1 >/dev/null 2>&1 &"
    assert one.trainyard("shell", "--", "sh", "-c", f"cd; {server}")[0] == 0
    options = ["--kubeconfig", str(one.kubeconfig), "--team", RESEARCH, f"{local}:{served}"]
    command = [sys.executable, "-m", "ops", "dev", "port", *options]
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(
            subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True)
        )
        stack.callback(client.terminate)

        def answer() -> str:
            address = f"http://127.0.0.1:{local}/"
            with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=60) as page:
                return str(page.read().decode())
            return ""

        assert "kept" in until(answer, "the forwarded port answers")
        used = ("shell", "--", "test", "-e", ACTIVITY)
        until(lambda: one.trainyard(*used)[0] == 0, "the pod is in use")
        client.send_signal(signal.SIGINT)
        assert client.wait(120) == 130


def _job(one: Member) -> str:
    return (
        one.kubectl("get", "jobs", "-l", f"{naming.DEV}=true", "-o", "name")
        .stdout.strip()
        .rpartition("/")[2]
    )


@pytest.mark.long(14)
def test_members_copy_files_to_the_teams_volume_and_back(
    guarded: GuardedCluster, member: Callable[[str], Member], tmp_path: Path
) -> None:
    # The only node is one of a GPU pool; transfer pods use others.
    guarded.cluster.kubectl(
        "taint", "nodes", "-l", f"{naming.POOL}=esc-pool", f"{values()['taintKey']}-"
    )
    ada, bob = member("ada"), member("bob")
    source = tmp_path / "corpus"
    (source / "deep").mkdir(parents=True)
    (source / "deep/data.bin").write_bytes(bytes(range(256)) * 20_000)
    (source / "page.txt").write_text("text")
    code, text = ada.run("data", "put", str(source), "web")
    assert code == 0 and "copied 2 files, 5.12 MB" in text, text
    code, text = ada.run("data", "put", str(source), "web")
    assert (
        code == 0 and "copied 0 files, 0 B, each verified by SHA-256; 2 were there already" in text
    )
    listed, _, found = ada.run("data", "list")[1].partition("web/")
    assert "NAME" in listed and found.split()[:3] == ["2", "5.12", "MB"], found
    # Another member has a pod of his own, and none of hers.
    code, text = bob.run("data", "get", "web", "--to", str(tmp_path / "copies"))
    assert code == 0, text
    assert (tmp_path / "copies/web/deep/data.bin").read_bytes() == bytes(range(256)) * 20_000
    pods = ada.kubectl("get", "pods", "-l", f"{naming.DEV}=true", "-o", "name").stdout.split()
    (hers,) = [pod for pod in pods if "/devpod-ada-" in pod and "transfer" in pod]
    refused = bob.kubectl("exec", hers, "--", "true")
    assert refused.returncode and "this dev pod is another user's" in refused.stderr
    code, text = bob.run("data", "remove", "web", "--yes")
    assert code == 0 and "removed 2 files" in text
    code, text = ada.run("data", "get", "web")
    assert code == 2 and text.count("\n") == 1 and "does not exist" in text, text
    for one in (ada, bob):
        assert one.trainyard("stop", "transfer")[0] == 0


def test_bad_requests_are_named(member: Callable[[str], Member]) -> None:
    ada = member("ada")
    code, text = ada.trainyard("start", "No", "--gpus", "9", "--hours", "25", "--image", "x:latest")
    assert code == 1
    assert [line.partition(":")[0] for line in text.splitlines()] == [
        "NAME",
        "--hours",
        "--gpus",
        "--image",
    ]
