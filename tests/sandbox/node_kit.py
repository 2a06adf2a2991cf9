"""Pods on process nodes, for the tests of the node agent."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from infra.domain import naming
from sandbox import paths
from sandbox.cluster import ClusterError
from sandbox.node.api import (
    ApiError,
    ApiUnavailable,
    Client,
    Json,
    node_path,
    object_path,
    pod_path,
)
from sandbox.node.images import REGISTRY
from sandbox.node.logs import LogOptions, read_log
from sandbox.node.reclaim import restore
from sandbox.node.records import Attempt, PodFolder, pod_folder
from tests import waiting
from tests.sandbox.conftest import Cluster, as_list
from training import source

DEADLINE_S = 240.0
HOST = "sandbox.trainyard.dev/host@sha256:" + "0" * 64
T = TypeVar("T")


def trainer_image() -> str:
    return f"{REGISTRY}/trainer@sha256:{source.digest(paths.PROJECT)}"


@contextlib.contextmanager
def platform_in(
    cluster: Cluster,
    objects: Sequence[Json],
    pools: Sequence[str],
    queues: Sequence[str],
    made: Mapping[str, str],
) -> Iterator[Cluster]:
    """The cluster with these objects, the pools' nodes ready and the ClusterQueues open; deleted at the end.

    Nodes that a failed test left reclaimed come back first, so that they are deleted with the others.
    `made`: by namespace, the kind of what tests make there, which goes first.
    """
    cluster.apply(*objects)
    selector = f"{naming.POOL} in ({','.join(pools)})"
    cluster.kubectl("wait", "nodes", "-l", selector, "--for=condition=Ready", "--timeout=180s")
    open_queues = [f"clusterqueue/{name}" for name in queues]
    cluster.kubectl("wait", *open_queues, "--for=condition=Active", "--timeout=180s")
    try:
        yield cluster
    finally:
        restore("all", state=cluster.state)
        _delete_platform(cluster, objects, made)


def _delete_platform(cluster: Cluster, objects: Sequence[Json], made: Mapping[str, str]) -> None:
    for namespace, kind in made.items():
        cluster.kubectl("delete", kind, "-n", namespace, "--all", "--timeout=180s")
    topologies = [one for one in objects if one["kind"] == "Topology"]
    others = [one for one in reversed(objects) if one["kind"] != "Topology"]
    cluster.delete(*others)
    options = ("--ignore-not-found", "--wait=false", "-f", "-")
    cluster.kubectl("delete", *options, stdin=as_list(topologies))
    names = {one["metadata"]["name"] for one in topologies}
    until(lambda: not names & wake_topologies(cluster) or None, "no topology is left", every_s=1.0)


def wake_topologies(cluster: Cluster) -> set[str]:
    """Have Kueue look again at topologies that are being deleted; return the names of all that are left.

    Kueue 0.19.2 looks once, a second after the last flavor is gone, and not again if its cache still has it.
    """
    found = json.loads(cluster.kubectl("get", "topologies", "-o", "json"))["items"]
    for one in found:
        if "deletionTimestamp" in (about := one["metadata"]):
            wake = f"tests.trainyard.dev/wake={time.monotonic_ns()}"
            with contextlib.suppress(ClusterError):  # it may be gone by now
                cluster.kubectl("annotate", "--overwrite", "topology", about["name"], wake)
    return {one["metadata"]["name"] for one in found}


def until(
    found: Callable[[], T | None],
    what: str,
    deadline_s: float = DEADLINE_S,
    *,
    every_s: float = 0.05,
) -> T:
    """Wait as `waiting.until` does; an API server that does not answer has nothing to show."""

    def looked() -> T | None:
        try:
            return found()
        except ApiUnavailable:
            return None

    return waiting.until(looked, what, deadline_s, every_s=every_s)


def log_text(path: Path) -> str:
    """What `kubectl logs` shows of a log."""
    return b"".join(read_log(path, LogOptions(), lambda: True)).decode()


@dataclass
class Kit:
    """A namespace with its own process nodes."""

    cluster: Cluster
    namespace: str
    nodes: list[str]
    client: Client = field(init=False)

    def __post_init__(self) -> None:
        self.client = Client(self.cluster.kubeconfig)

    def await_node(self, name: str) -> Json:
        """Wait until the Node is ready and without the taint of new nodes; return it."""

        def ready() -> Json | None:
            node = self.client.get(node_path(name))
            conditions = {c["type"]: c["status"] for c in node["status"].get("conditions") or []}
            return node if conditions.get("Ready") == "True" and not new_taints(node) else None

        return until(ready, f"node {name} is ready")

    def await_service_account(self) -> None:
        path = object_path("/api/v1", self.namespace, "serviceaccounts")
        until(lambda: self.client.get(path)["items"], "the default service account")

    def create(self, kind: str, name: str, body: Json, api: str = "/api/v1") -> Json:
        """Create an object in the namespace; `kind` is the plural."""
        body = {**body, "metadata": {"name": name, **body.get("metadata", {})}}
        return self.client.create(object_path(api, self.namespace, kind), body)

    def run(
        self,
        name: str,
        script: str = "",
        *,
        node: int = 0,
        metadata: Json | None = None,
        **spec: Any,
    ) -> Json:
        """Create a pod whose one container `main` runs `script` in a shell; `spec` overrides fields."""
        main = {"name": "main", "image": HOST, "command": ["sh", "-c", script]}
        main.update(spec.pop("main", {}))
        body: Json = {
            "restartPolicy": "Never",
            "nodeName": self.nodes[node],
            "terminationGracePeriodSeconds": 5,
            "automountServiceAccountToken": False,
            "containers": [main],
            **spec,
        }
        return self.create("pods", name, {"metadata": metadata or {}, "spec": body})

    def pod(self, name: str) -> Json:
        return self.client.get(pod_path(self.namespace, name))

    def await_pod(
        self, name: str, holds: Callable[[Json], Any], what: str, deadline_s: float = DEADLINE_S
    ) -> Json:
        def found() -> Json | None:
            pod = self.pod(name)
            return pod if holds(pod) else None

        try:
            return until(found, f"{name}: {what}", deadline_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; status is {self.pod(name).get('status')}") from None

    def await_phase(self, name: str, phase: str, deadline_s: float = DEADLINE_S) -> Json:
        return self.await_pod(
            name, lambda p: (p.get("status") or {}).get("phase") == phase, phase, deadline_s
        )

    def await_gone(self, name: str, deadline_s: float = DEADLINE_S) -> None:
        def gone() -> bool:
            try:
                self.pod(name)
                return False
            except ApiError as error:
                return error.not_found

        until(gone, f"pod {name} is gone", deadline_s)

    def release(self, name: str) -> None:
        self.client.patch(pod_path(self.namespace, name), {"metadata": {"finalizers": None}})

    def delete(self, name: str, grace_s: int | None = None) -> None:
        options = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        self.client.delete(pod_path(self.namespace, name), options)

    def folder(self, pod: Json) -> PodFolder:
        return pod_folder(self.cluster.state, pod)

    def attempt(self, pod: Json, container: str = "main") -> Attempt:
        return self.folder(pod).attempts(container)[-1]

    def log(self, pod: Json, container: str = "main") -> str:
        return log_text(self.attempt(pod, container).log)

    def await_line(self, name: str, line: str, container: str = "main") -> Json:
        return self.await_pod(
            name,
            lambda p: (
                self.folder(p).attempts(container) and line in self.log(p, container).splitlines()
            ),
            f"{container} prints {line!r}",
        )

    def events(self, name: str) -> list[str]:
        """`REASON: message` of the pod's events."""
        path = object_path("/api/v1", self.namespace, "events")
        items = self.client.get(path, fieldSelector=f"involvedObject.name={name}")["items"]
        return [f"{item['reason']}: {item['message']}" for item in items]

    def kubectl(self, *args: str) -> subprocess.CompletedProcess[str]:
        command = ["kubectl", "-n", self.namespace, *args]
        return subprocess.run(
            command, env=self.cluster.env, capture_output=True, text=True, timeout=60, check=False
        )


@contextlib.contextmanager
def serving(cluster: Cluster, name: str, nodes: int = 2) -> Iterator[Kit]:
    """A namespace with its own process nodes, deleted at the end."""
    kit = Kit(cluster, f"test-{name}", [f"{name}-{number}" for number in range(nodes)])
    namespace = {"metadata": {"name": kit.namespace}}
    kit.client.create("/api/v1/namespaces", namespace)
    try:
        for node in kit.nodes:
            kit.client.create(node_path(), node_manifest(node))
        for node in kit.nodes:
            kit.await_node(node)
        kit.await_service_account()
        yield kit
    finally:
        for node in kit.nodes:
            with contextlib.suppress(ApiError):  # a test may have reclaimed it
                kit.client.delete(node_path(node))
        kit.client.delete(f"/api/v1/namespaces/{kit.namespace}")


def node_manifest(name: str) -> Json:
    """A process node of one GPU, as the simulated pools create it."""
    resources = {"cpu": "8", "memory": "16Gi", "pods": "110", "nvidia.com/gpu": "1"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"trainyard.dev/node-runtime": "process"},
            "labels": {"kubernetes.io/hostname": name},
        },
        "status": {"capacity": resources, "allocatable": resources},
    }


def new_taints(node: Json) -> list[str]:
    """Taints that the node lifecycle controller has not yet removed from a new node."""
    taints = node["spec"].get("taints") or []
    return [t["key"] for t in taints if t["key"].startswith("node.kubernetes.io/not-ready")]


def container_status(pod: Json, name: str = "main") -> Json:
    status = pod.get("status") or {}
    entries = [
        *(status.get("containerStatuses") or []),
        *(status.get("initContainerStatuses") or []),
    ]
    return next((entry for entry in entries if entry["name"] == name), {})


def terminated(pod: Json, name: str = "main") -> Json:
    found: Json = container_status(pod, name).get("state", {}).get("terminated") or {}
    return found


def waiting_reason(pod: Json, name: str = "main") -> str:
    state = container_status(pod, name).get("state") or {}
    return str((state.get("waiting") or {}).get("reason", ""))


def condition(pod: Json, kind: str) -> Json:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return next((c for c in conditions if c["type"] == kind), {})


def processes_with(marker: str) -> list[int]:
    """Pids of this machine's processes that have `marker` as one of their arguments."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    if marker.encode() in file.read().split(b"\0"):
                        found.append(int(entry))
            except OSError:
                continue
    return found
