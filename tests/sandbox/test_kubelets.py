"""Runs on real kubelets, in the image that the committed Dockerfile makes; `--full` only, as root.

What process nodes only have as objects is enforced here: limits, the size of shared memory, network policies.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from infra.domain import naming
from sandbox import paths, toolchain
from sandbox.node.reclaim import reclaim
from tests.sandbox import kubelet_image, kubelet_node
from tests.sandbox.kubelet_kit import NODES, OTHERS, TEAM, Fleet, running_fleet
from tests.sandbox.kubelet_node import METADATA, SERVICE_OF_API
from tests.sandbox.node_kit import processes_with, until
from tests.sandbox.region_kit import lines, steps

pytestmark = [pytest.mark.sandbox, pytest.mark.full_only, pytest.mark.timeout(3600)]

PROGRAMS = {
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "iptables": "iptables",
    "ipset": "ipset",
    "ip": "iproute2",
    "nsenter": "util-linux",
}
"""What the machine must have, and Debian's packages of it."""
NAMESPACE = naming.namespace(TEAM)
STEPS = 60
NOTICE_S = 120.0
MEMORY, SHARED = 3 * 1024**3, 256 * 1024**2

Json = dict[str, Any]


def _lacks() -> str:
    """Return why this machine cannot run the nodes, empty if it can."""
    if os.geteuid():
        return "nodes with kubelets need root"
    if not any(root.name == "memory" for root in kubelet_node.hierarchies()):
        return "needs cgroups of version 1: nodes were never tried on version 2"
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    missing = [package for name, package in PROGRAMS.items() if not shutil.which(name, path=path)]
    return f"needs Debian's packages {', '.join(missing)}" if missing else ""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    if why := _lacks():
        pytest.skip(why)
    tools = toolchain.ensure(
        Console(force_terminal=False),
        *("kubernetes", "kubelet", "containerd", "coredns", "kube-router"),
    )
    images = kubelet_image.images(tools)
    with running_fleet(tools, images, tmp_path_factory.mktemp("kubelets")) as fleet:
        yield fleet
    assert not kubelet_node.left_cgroups() and not fleet.disks.exists()
    assert kubelet_node.HOST_LINK not in os.listdir("/sys/class/net")
    assert str(fleet.disks) not in Path("/proc/mounts").read_text()
    assert not [pid for pid in _all_processes() if str(fleet.disks) in pid]


def _all_processes() -> list[str]:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(file.read_text().replace("\0", " "))
        except OSError:
            continue
    return found


@dataclass
class Trained:
    """A run of two pods. `folder`: what it writes."""

    fleet: Fleet
    name: str
    folder: Path

    @classmethod
    def submit(cls, fleet: Fleet, name: str, total: int = STEPS) -> Trained:
        """Submit the drill's run as a member, and wait until it trains."""
        document = yaml.safe_load((paths.PROJECT / "training/runs/drill.yaml").read_text())
        resources = {"cpu": "1", "memory": str(MEMORY), "shm": str(SHARED)}
        changed = {"name": name, "resources": resources, "overrides": {"steps": total}}
        file = fleet.region.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(document | changed))
        fleet.trainyard("ada", TEAM, "run", "submit", str(file))
        runs = fleet.region.runs()
        until(lambda: any(steps(run) for run in runs.glob(f"{name}-v1-*")), "it trains", 600)
        (folder,) = runs.glob(f"{name}-v1-*")
        return cls(fleet, name, folder)

    def pods(self) -> list[Json]:
        selector = f"{naming.RUN_ID}={self.folder.name}"
        found = self.fleet.get("pods", f"-n={NAMESPACE}", "-l", selector)["items"]
        return [pod for pod in found if pod["status"]["phase"] == "Running"]


@pytest.fixture(scope="module")
def busy(fleet: Fleet) -> Trained:
    return Trained.submit(fleet, "busy", 10**6)


def test_kubelets_report_ready_with_their_pools(fleet: Fleet) -> None:
    nodes = {one["metadata"]["name"]: one for one in fleet.get("nodes")["items"]}
    for name in NODES:
        info = nodes[name]["status"]["nodeInfo"]
        assert info["kubeletVersion"] == "v1.36.3"
        assert info["containerRuntimeVersion"] == "containerd://2.2.9"
    assert nodes["spot-0"]["status"]["allocatable"][naming.GPU] == "1"


def test_pods_of_a_submitted_run_are_confined_as_rendered(fleet: Fleet, busy: Trained) -> None:
    pods = busy.pods()
    assert {pod["spec"]["nodeName"] for pod in pods} == {"spot-0", "spot-1"}
    for pod in pods:
        assert pod["status"]["podIP"] != pod["status"]["hostIP"]
        (status,) = pod["status"]["containerStatuses"]
        assert status["imageID"] == fleet.images.trainer
    ranks = [pid for pid in processes_with(f"/checkpoints/{busy.folder.name}") if _user(pid)]
    assert len(ranks) >= 2
    for pid in ranks:
        kernel = _status(pid)
        assert kernel["Uid"].split() == ["1000"] * 4 and kernel["Gid"].split() == ["1000"] * 4
        assert int(kernel["CapEff"], 16) == int(kernel["CapBnd"], 16) == 0
        assert (kernel["Seccomp"], kernel["NoNewPrivs"]) == ("2", "1")
        mounts = {fields[4]: fields for fields in _mounts(pid)}
        assert "ro" in mounts["/"][5].split(",")
        assert f"size={SHARED // 1024}k" in mounts["/dev/shm"][-1]
        assert _limit(pid, "memory", "memory.limit_in_bytes") == MEMORY
        assert _limit(pid, "cpu", "cpu.cfs_quota_us") == 100_000


def _user(pid: int) -> bool:
    return _status(pid)["Uid"].startswith("1000")


def _status(pid: int) -> Mapping[str, str]:
    text = Path(f"/proc/{pid}/status").read_text()
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


def _mounts(pid: int) -> list[list[str]]:
    return [line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]


def _limit(pid: int, controller: str, file: str) -> int:
    """A limit of a process's cgroup (version 1)."""
    groups = [line.split(":") for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    (path,) = [one[2] for one in groups if controller in one[1].split(",")]
    return int((Path("/sys/fs/cgroup") / controller / path[1:] / file).read_text())


def test_members_ask_why_and_read_logs(fleet: Fleet, busy: Trained) -> None:
    why = fleet.trainyard("ada", TEAM, "run", "why", "busy", "--json")
    assert json.loads(why)["symptom"] == "running", why
    assert "loss" in fleet.trainyard("ada", TEAM, "run", "logs", "busy")


@pytest.fixture(scope="module")
def desk(fleet: Fleet) -> None:
    """A dev pod of bob, a member of the other team."""
    fleet.trainyard("bob", OTHERS, "dev", "start", "--gpus", "0", "--hours", "1")


def test_a_dev_pod_may_use_what_it_asked_for_and_no_more(fleet: Fleet, desk: None) -> None:
    shell = ("bob", OTHERS, "dev", "shell", "--")
    assert "1000\n" in fleet.trainyard(*shell, "id", "-u")
    fill = "head -c {} /dev/zero > /dev/shm/full; echo $?; rm -f /dev/shm/full"
    assert fleet.trainyard(*shell, "sh", "-c", fill.format("900M")) == "0\n"
    assert fleet.trainyard(*shell, "sh", "-c", fill.format("1100M")) == "1\n"
    take = "python -c 'len(bytearray({}*1024**3))'; echo $?"
    assert fleet.trainyard(*shell, "sh", "-c", take.format(2)) == "0\n"
    assert fleet.trainyard(*shell, "sh", "-c", take.format(5)).endswith("137\n")
    assert fleet.trainyard(*shell, "sh", "-c", "touch /usr/made 2>&1; echo $?").endswith("1\n")


REACH = """
import json, socket, sys
def reaches(address):
    try:
        socket.create_connection(address, 5).close()
    except OSError:
        return False
    return True
found = {what: reaches(tuple(address)) for what, address in json.loads(sys.argv[2]).items()}
print(json.dumps(found | {"name": socket.gethostbyname(sys.argv[1])}))
"""


def test_network_policies_keep_teams_metadata_and_api_server_apart(
    fleet: Fleet, busy: Trained, desk: None
) -> None:
    ranks = [pod["status"]["podIP"] for pod in busy.pods()]
    rank = ranks[0]
    for namespace in ("outside", naming.MONITORING_NAMESPACE):
        fleet.start_probe(namespace)
    name = f"{busy.folder.name}-worker-0-0.{busy.folder.name}.{NAMESPACE}.svc.cluster.local"
    targets = {
        "rank": (rank, naming.METRICS_PORT),
        "metadata": (METADATA, 80),
        "api": (SERVICE_OF_API, 443),
    }
    words = ("python", "-c", REACH, name, json.dumps(targets))
    member = json.loads(fleet.trainyard("bob", OTHERS, "dev", "shell", "--", *words))
    assert member.pop("name") in ranks
    assert member == dict.fromkeys(targets, False)
    # The same addresses answer where no policy holds, or one that allows it.
    expected = {"outside": (False, True, True), naming.MONITORING_NAMESPACE: (True, True, True)}
    for namespace, reached in expected.items():
        found = json.loads(fleet.kubectl("exec", "-n", namespace, "probe", "--", *words))
        assert tuple(found[target] for target in targets) == reached, (namespace, found)


def test_a_run_resumes_bit_by_bit_when_its_node_is_taken_away(fleet: Fleet) -> None:
    fleet.kubectl("delete", "jobsets", "--all", f"--namespace={NAMESPACE}", "--timeout=180s")
    steady = Trained.submit(fleet, "steady")
    fleet.trainyard("ada", TEAM, "run", "wait", "steady")
    assert max(steps(steady.folder)) == STEPS
    run = Trained.submit(fleet, "taken")
    until(lambda: max(steps(run.folder)) >= 14, "step 14", 900)
    told: list[str] = []
    reclaim("spot-1", NOTICE_S, on_event=told.append, state=fleet.state)
    fleet.take("spot-1")
    saved = max(steps(run.folder))
    assert saved < STEPS and any("drained" in line for line in told), told
    fleet.add("spot-1")
    fleet.trainyard("ada", TEAM, "run", "wait", "taken")
    resumed = [one for one in lines(run.folder, "events.jsonl") if one.get("event") == "resumed"]
    assert [one["from_step"] for one in resumed] == [saved]
    assert steps(run.folder) == steps(steady.folder)


def test_a_killed_test_leaves_no_process_mount_or_interface(tmp_path: Path) -> None:
    if why := _lacks():
        pytest.skip(why)
    script = (
        "import os, sys, signal; from tests.sandbox.kubelet_node import Namespaces;"
        "one = Namespaces(('sleep', 'infinity'), ('mount', 'net', 'pid', 'mount-proc'));"
        "other = one.command('sleep', 'infinity');"
        "import subprocess; subprocess.Popen(other);"
        "print(one.pid, flush=True); signal.pause()"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=paths.PROJECT) as test:
        assert test.stdout is not None
        pid = int(test.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        test.kill()
    until(lambda: not Path(f"/proc/{pid}").exists(), "its processes have ended")
