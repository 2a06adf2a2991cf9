"""Nodes with a kubelet, containerd and runc on this machine.

A node is what a machine is: processes, mounts and network of its own, in namespaces whose first process starts
containerd. When that process ends, or the test that has started it, the kernel ends all others and removes mounts
and interfaces. Empty cgroups are all that a killed test leaves, and `remove_cgroups` removes them.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests import waiting

Json = dict[str, Any]

CGROUP = "trainyard-node-"
"""Start of the names of nodes' cgroups, below which kubelets have those of pods."""
HOST_LINK = "ty-nodes"
"""This machine's only interface to the nodes."""
HOST, SWITCH = "198.18.0.2", "198.18.0.1"
"""Addresses of this machine and of the network between nodes, of a range for benchmarks that nothing else uses."""
METADATA = "169.254.169.254"
SERVICE_OF_API, SERVICE_OF_DNS = "10.0.0.1", "10.0.0.10"
DEADLINE_S = 180.0

_DIES_WITH_ITS_PARENT = ("setpriv", "--pdeathsig=KILL", "unshare", "--fork", "--kill-child=KILL")
_SYSCTLS = "vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops"
_KEYS = "kernel/keys/root_maxkeys kernel/keys/root_maxbytes"
_START = f"""
set -eu
mount --make-rshared /
mount --bind "$FOLDER/lib" /var/lib
mount --bind "$FOLDER/log" /var/log
mount -t tmpfs -o mode=755 tmpfs /run
# A kubelet sets these for the whole machine; here it writes into files.
for name in {_SYSCTLS} {_KEYS}; do
  file=/run/$(echo "$name" | tr / -)
  cat "/proc/sys/$name" > "$file"
  mount --bind "$file" "/proc/sys/$name"
done
ip link set lo up
containerd --config="$FOLDER/containerd.toml" > "$FOLDER/containerd.log" 2>&1 &
wait
"""
_CONTAINERD = """
version = 3
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{pause}"
[plugins."io.containerd.cri.v1.runtime"]
# Without CAP_SYS_RESOURCE runc cannot lower the score, and ends with an error that names nothing.
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "{folder}/cni"
"""


def run(*command: str, cwd: Path | None = None) -> str:
    """Run a command and return its stdout; its output is part of the error."""
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


class Namespaces:
    """A process in new namespaces, which ends with this one, and others that are started in them."""

    def __init__(self, command: tuple[str, ...], kinds: tuple[str, ...], **env: str) -> None:
        self._enter = [f"--{kind.removesuffix('-proc')}" for kind in kinds]
        options = [f"--{kind}" for kind in kinds]
        self._parent = subprocess.Popen(
            [*_DIES_WITH_ITS_PARENT, *options, *command],
            env=os.environ | env,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        children = Path(f"/proc/{self._parent.pid}/task/{self._parent.pid}/children")
        found = waiting.until(lambda: children.read_text().split(), "it has started", DEADLINE_S)
        self.pid = int(found[0])

    def command(self, *command: str) -> list[str]:
        return ["nsenter", f"--target={self.pid}", *dict.fromkeys(self._enter), "--", *command]

    def run(self, *command: str) -> str:
        return run(*self.command(*command))

    def listen(self, address: str, port: int) -> socket.socket:
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/proc/thread-self/ns/net") as own, open(f"/proc/{self.pid}/ns/net") as there:
            assert libc.setns(there.fileno(), 0) == 0, os.strerror(ctypes.get_errno())
            try:
                return socket.create_server((address, port))
            finally:
                assert libc.setns(own.fileno(), 0) == 0, os.strerror(ctypes.get_errno())

    def end(self) -> None:
        self._parent.kill()
        self._parent.wait()
        gone = Path(f"/proc/{self.pid}")
        waiting.until(lambda: not gone.exists(), "its processes have ended", DEADLINE_S)


class Network(Namespaces):
    """What nodes are cabled to: a bridge in a network of its own, with a link to this machine."""

    def __init__(self) -> None:
        super().__init__(("sleep", "infinity"), ("net",))
        self.run("ip", "link", "add", "nodes", "type", "bridge")
        self.run("ip", "address", "add", f"{SWITCH}/24", "dev", "nodes")
        self.run("ip", "address", "add", f"{METADATA}/32", "dev", "nodes")
        self.run("ip", "link", "set", "nodes", "up")
        peer = ("peer", "name", "host", "netns", str(self.pid))
        run("ip", "link", "add", HOST_LINK, "type", "veth", *peer)
        self._plug("host")
        run("ip", "address", "add", f"{HOST}/24", "dev", HOST_LINK)
        run("ip", "link", "set", HOST_LINK, "up")

    def connect(self, node: Node, others: int) -> None:
        """Cable a node and give it its address and the routes to pods of as many nodes."""
        there = ("peer", "name", "eth0", "netns", str(node.namespaces.pid))
        self.run("ip", "link", "add", node.name, "type", "veth", *there)
        self._plug(node.name)
        inside = node.namespaces.run
        inside("ip", "address", "add", f"{node.address}/24", "dev", "eth0")
        inside("ip", "link", "set", "eth0", "up")
        inside("ip", "route", "add", "default", "via", SWITCH)
        self.run("ip", "route", "replace", _pods(node.number), "via", node.address)
        for number in set(range(others)) - {node.number}:
            inside("ip", "route", "add", _pods(number), "via", _address(number))
        inside("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.bridge.bridge-nf-call-iptables=1")

    def end(self) -> None:
        run("ip", "link", "delete", HOST_LINK)  # a socket that is still open keeps the network
        super().end()

    def _plug(self, name: str) -> None:
        self.run("ip", "link", "set", name, "master", "nodes", "up")


def _address(number: int) -> str:
    return f"198.18.0.{10 + number}"


def _pods(number: int) -> str:
    return f"198.19.{number}.0/24"


@dataclass
class Node:
    """One node. `folder` has its disk, logs and configuration; `binaries` those of the tools."""

    name: str
    folder: Path
    binaries: Mapping[str, Path]
    pause: str
    number: int = 0
    namespaces: Namespaces = field(init=False)

    @property
    def address(self) -> str:
        return _address(self.number)

    @property
    def cgroup(self) -> str:
        return f"{CGROUP}{self.name}"

    def start(self, store: Path | None = None) -> None:
        """Start containerd, with the images of a store."""
        (self.folder / "log").mkdir(parents=True)
        (self.folder / "lib").mkdir()
        (self.folder / "cni").mkdir()
        if store:
            copy_store(store, self.folder / "lib/containerd")
        config = _CONTAINERD.format(pause=self.pause, folder=self.folder)
        (self.folder / "containerd.toml").write_text(config)
        (self.folder / "cni/10-pods.conflist").write_text(json.dumps(self._pod_network()))
        path = f"{self.binaries['containerd'].parent}:{os.environ['PATH']}:/usr/sbin:/sbin"
        kinds = ("mount", "net", "pid", "mount-proc")
        env = {"FOLDER": str(self.folder), "PATH": path}
        self.namespaces = Namespaces(("bash", "-c", _START), kinds, **env)
        waiting.until(lambda: self._answers(), "containerd answers", DEADLINE_S, every_s=0.2)

    def _answers(self) -> bool:
        command = self.namespaces.command(str(self.binaries["ctr"]), "version")
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def _pod_network(self) -> Json:
        ipam = {
            "type": "host-local",
            "ranges": [[{"subnet": _pods(self.number)}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipam": ipam}
        return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}

    def ctr(self, *arguments: str) -> str:
        """Run containerd's client on the kubelet's images and containers."""
        return self.namespaces.run(str(self.binaries["ctr"]), "--namespace=k8s.io", *arguments)

    def spawn(self, program: str, *arguments: str) -> None:
        """Start a program on the node; it ends with the node."""
        command = self.namespaces.command(str(self.binaries[program]), *arguments)
        with (self.folder / f"{program}.log").open("a") as log:
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def join(self, kubelet: Mapping[str, Any], kubeconfig: Json, labels: Mapping[str, str]) -> None:
        """Start the kubelet, with these settings besides those that fit this machine."""
        for hierarchy in hierarchies():
            (hierarchy / self.cgroup).mkdir(exist_ok=True)
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.cgroup}",
            "clusterDNS": [SERVICE_OF_DNS],
            "clusterDomain": "cluster.local",
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "enforceNodeAllocatable": [],
            # The disk is this machine's: how full it is must not remove images or pods.
            "evictionHard": {"memory.available": "100Mi"},
            "imageGCHighThresholdPercent": 100,
            "failCgroupV1": False,
            "failSwapOn": False,
            "localStorageCapacityIsolation": False,
            "resolvConf": "",
            **kubelet,
        }
        for name, document in (("kubelet", config), ("kubeconfig", kubeconfig)):
            (self.folder / f"{name}.yaml").write_text(yaml.safe_dump(document))
        self.spawn(
            "kubelet",
            f"--config={self.folder}/kubelet.yaml",
            f"--kubeconfig={self.folder}/kubeconfig.yaml",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
            f"--node-labels={','.join(f'{key}={value}' for key, value in labels.items())}",
        )

    def end(self) -> None:
        self.namespaces.end()
        remove_cgroups(self.cgroup)
        shutil.rmtree(self.folder)


@contextlib.contextmanager
def only_containerd(node: Node) -> Iterator[Node]:
    """The node without a kubelet; its disk stays."""
    node.start()
    try:
        yield node
    finally:
        node.namespaces.end()


def copy_store(store: Path, to: Path) -> None:
    """Copy a store of containerd's by hard links, its databases as files of their own."""
    run("cp", "-al", str(store), str(to))
    for database in store.rglob("*.db"):
        copy = to / database.relative_to(store)
        copy.unlink()
        shutil.copy2(database, copy)


def hierarchies() -> list[Path]:
    """Return the roots of this machine's cgroups, of version 1, 2 or both."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return [Path(fields[1]) for fields in mounts if fields[2] in ("cgroup", "cgroup2")]


def left_cgroups(prefix: str = CGROUP) -> list[Path]:
    found: list[Path] = []
    for hierarchy in hierarchies():
        for root in hierarchy.glob(f"{prefix}*"):
            found += [Path(folder) for folder, _, _ in os.walk(root, topdown=False)]
    return found


def remove_cgroups(prefix: str = CGROUP) -> None:
    """Remove the cgroups of nodes that have ended."""

    def removed() -> bool:
        for cgroup in left_cgroups(prefix):
            with contextlib.suppress(OSError):  # its last process is still ending
                cgroup.rmdir()
        return not left_cgroups(prefix)

    waiting.until(removed, "their cgroups are removed", DEADLINE_S)
