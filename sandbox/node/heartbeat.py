"""Node status, labels and lease, as a kubelet maintains them."""

from __future__ import annotations

import logging
import os
import platform
import shutil
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from infra.domain import naming
from sandbox import paths
from sandbox.node.api import ApiError, ApiUnavailable, Client, Json, node_path, object_path
from sandbox.node.status import stamp

log = logging.getLogger("node")

RUNTIME = "process"
LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40
RENEW_S = 10.0
STATUS_S = 300.0
"""Interval of status updates without changes: the kubelet's default."""
MEMORY_FLOOR_BYTES = 100 * 2**20
DISK_FLOOR_BYTES = 2**30
"""Below these the node reports pressure and gets no more pods."""


def is_process_node(node: Json) -> bool:
    annotations = node["metadata"].get("annotations") or {}
    return bool(annotations.get(naming.NODE_RUNTIME) == RUNTIME)


def pressure_conditions(available_memory: int, free_disk: int) -> dict[str, str]:
    """Return condition type -> message for each scarce resource."""
    found = {}
    if available_memory < MEMORY_FLOOR_BYTES:
        found["MemoryPressure"] = f"{available_memory // 2**20} MiB of memory are available"
    if free_disk < DISK_FLOOR_BYTES:
        found["DiskPressure"] = f"{free_disk // 2**20} MiB are free on the sandbox's disk"
    return found


def node_conditions(
    previous: list[Json], short: dict[str, str], broken: str, now: float
) -> list[Json]:
    """Return the five conditions of a Node; `broken`: why containers cannot run, or empty."""
    wanted = [
        ("MemoryPressure", "KubeletHasInsufficientMemory", "KubeletHasSufficientMemory"),
        ("DiskPressure", "KubeletHasDiskPressure", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "KubeletHasInsufficientPID", "KubeletHasSufficientPID"),
        ("NetworkUnavailable", "NoRoute", "HostNetwork"),
    ]
    found = [
        (kind, kind in short, bad if kind in short else good, short.get(kind, good))
        for kind, bad, good in wanted
    ]
    ready = ("Ready", not broken, "ContainerRuntimeNotReady" if broken else "KubeletReady")
    found.append((*ready, broken or "process node is ready"))
    old = {c["type"]: c for c in previous}
    return [_condition(old.get(entry[0]), *entry, now) for entry in found]


def _condition(
    old: Json | None, kind: str, true: bool, reason: str, message: str, now: float
) -> Json:
    status = "True" if true else "False"
    same = old is not None and old.get("status") == status and old.get("lastTransitionTime")
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": stamp(now),
        "lastTransitionTime": old["lastTransitionTime"] if old and same else stamp(now),
    }


def node_info(kubelet_version: str, runtime_version: str) -> Json:
    boot = _read("/proc/sys/kernel/random/boot_id")
    machine = _read("/etc/machine-id") or boot
    release = platform.freedesktop_os_release() if Path("/etc/os-release").exists() else {}
    architectures = {"x86_64": "amd64", "aarch64": "arm64"}
    return {
        "machineID": machine,
        "systemUUID": machine,
        "bootID": boot,
        "kernelVersion": platform.release(),
        "osImage": release.get("PRETTY_NAME", "Linux"),
        "containerRuntimeVersion": f"bubblewrap://{runtime_version}",
        "kubeletVersion": kubelet_version,
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": architectures.get(platform.machine(), platform.machine()),
    }


class Heartbeat(threading.Thread):
    def __init__(self, state: paths.State, info: Json, port: int, check: Callable[[], str]) -> None:
        """`check`: returns why containers cannot run, or an empty text."""
        super().__init__(name="heartbeat", daemon=True)
        self._state = state
        self._info = info
        self._port = port
        self._check = check
        self._nodes: dict[str, tuple[Json, Client]] = {}
        self._reported: dict[str, tuple[float, set[tuple[str, str]]]] = {}
        self._wake = threading.Event()

    def put(self, node: Json, client: Client) -> None:
        name = node["metadata"]["name"]
        known, _ = self._nodes.get(name, (None, None))
        self._nodes[name] = node, client
        if known is None or known["metadata"]["uid"] != node["metadata"]["uid"]:
            self._reported.pop(name, None)
            self._wake.set()
        elif name in self._reported and not self._reported[name][1] <= _statuses(node):
            self._wake.set()  # another client changed our conditions

    def drop(self, name: str) -> None:
        self._nodes.pop(name, None)
        self._reported.pop(name, None)

    def run(self) -> None:
        while True:
            self._wake.clear()
            broken = self._check()
            short = pressure_conditions(_available_memory(), _free_disk(self._state))
            for name, (node, client) in list(self._nodes.items()):
                try:
                    self._status(client, name, node, short, broken)
                    _renew_lease(client, name, node)
                except (ApiError, ApiUnavailable) as error:
                    log.debug("%s: heartbeat: %s", name, error)
                except Exception:
                    log.exception("%s: heartbeat", name)
            self._wake.wait(RENEW_S)

    def _status(
        self, client: Client, name: str, node: Json, short: dict[str, str], broken: str
    ) -> None:
        """Patch the status when it changed or is due."""
        now = time.time()
        previous = (node.get("status") or {}).get("conditions") or []
        entries = node_conditions(previous, short, broken, now)
        gist = {(c["type"], c["status"]) for c in entries}
        reported = self._reported.get(name)
        # Also when another client changed it, such as the node lifecycle controller.
        if (
            reported
            and reported[1] == gist
            and gist <= _statuses(node)
            and now - reported[0] < STATUS_S
        ):
            return
        status: Json = {
            "conditions": entries,
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": self._info,
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
        }
        if not (node.get("status") or {}).get("capacity"):
            status["capacity"] = status["allocatable"] = machine_capacity()
        body = {"metadata": {"uid": node["metadata"]["uid"]}, "status": status}
        client.patch(node_path(name, "status"), body, "strategic")
        self._label(client, name, node)
        if reported is None or reported[1] != gist:
            log.info("%s: %s", name, "ready" if not broken else f"not ready: {broken}")
        self._reported[name] = (now, gist)

    def _label(self, client: Client, name: str, node: Json) -> None:
        """Add the labels that every kubelet sets if the Node lacks them."""
        wanted = {
            naming.HOSTNAME: name,
            naming.OS: "linux",
            naming.ARCH: self._info["architecture"],
        }
        labels = node["metadata"].get("labels") or {}
        missing = {key: value for key, value in wanted.items() if key not in labels}
        if missing:
            client.patch(node_path(name), {"metadata": {"labels": missing}})


def _renew_lease(client: Client, name: str, node: Json) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    path = object_path("/apis/coordination.k8s.io/v1", LEASE_NAMESPACE, "leases", name)
    spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now}
    try:
        client.patch(path, {"spec": spec})
    except ApiError as error:
        if not error.not_found:
            raise
        owner = {"apiVersion": "v1", "kind": "Node", "name": name}
        owner["uid"] = node["metadata"]["uid"]
        metadata = {"name": name, "ownerReferences": [owner]}
        body = {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1"}
        client.create(path.rpartition("/")[0], {**body, "metadata": metadata, "spec": spec})


def _statuses(node: Json) -> set[tuple[str, str]]:
    """Return (type, status) of the conditions in the API server."""
    return {(c["type"], c["status"]) for c in (node.get("status") or {}).get("conditions") or []}


def machine_capacity() -> Json:
    """Return this machine's capacity, for a Node that was created without one."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cpu": str(os.cpu_count() or 1), "memory": f"{memory // 1024}Ki", "pods": "110"}


def _available_memory() -> int:
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return MEMORY_FLOOR_BYTES


def _free_disk(state: paths.State) -> int:
    try:
        return shutil.disk_usage(state.home).free
    except OSError:
        return DISK_FLOOR_BYTES


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
