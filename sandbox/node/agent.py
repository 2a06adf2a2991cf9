"""The node agent: a kubelet for all process nodes of the sandbox, in one process."""

from __future__ import annotations

import functools
import logging
import threading
import time
from dataclasses import replace

from sandbox import paths
from sandbox.node import runtime
from sandbox.node.api import ApiError, ApiUnavailable, Client, Json
from sandbox.node.context import Addresses, AgentContext
from sandbox.node.credentials import NodeClient
from sandbox.node.egress import AggregatedApis, Egress, kubelet_endpoints
from sandbox.node.events import Events
from sandbox.node.heartbeat import Heartbeat, is_process_node, node_info
from sandbox.node.hosts import HostTable
from sandbox.node.log_server import LogServer
from sandbox.node.pod_worker import PodWorker
from sandbox.node.provisioner import Provisioner
from sandbox.node.records import pod_folder, pod_folders, prune_logs
from sandbox.node.runtime import Exits
from sandbox.node.watch import Informer
from sandbox.rbac import AGENT

log = logging.getLogger("agent")

API_WAIT_S = 1.0
SETTLE_S = 10.0
"""How long a new agent waits for each pod's first step before it rewrites hosts files."""
END_S = 10.0
CHECK_S = 30.0
"""Interval of checks while the runtime does not work."""


class Agent:
    """Serves the Nodes with the process runtime's annotation and the pods bound to them."""

    def __init__(self, state: paths.State, port: int) -> None:
        self._port = port
        self.state = state
        self._lock = threading.RLock()
        self._workers: dict[str, PodWorker] = {}
        self._pod_watches: dict[str, Informer] = {}
        self._clients: dict[str, NodeClient] = {}
        """By node; kept when a node is deleted, since its pods are still to be reported."""
        self._runtime_problem = ""
        self._next_check = 0.0

    def start(self) -> None:
        """Wait for the API server, start all threads and return."""
        self.state.node.mkdir(parents=True, exist_ok=True, mode=0o700)
        client, version = self._connect()
        runtime_version = self._check_runtime()
        self.shared = AgentContext(
            client=client,
            state=self.state,
            events=Events(),
            exits=Exits(),
            addresses=Addresses(self.state.home),
            hosts=HostTable(),
        )
        for place in pod_folders(self.state):
            address = place.load().get("ip")
            if address and any(a.alive() for a in place.all_attempts()):
                self.shared.addresses.claim(address, place.uid)
        server = LogServer(self._find_pod, self.state, self._port)
        self._heartbeat = Heartbeat(
            self.state,
            node_info(version, runtime_version),
            self._port,
            self._runtime_error,
        )
        services = Informer(client, "/api/v1/services", self.shared.hosts.service)
        services.start()
        services.synced.wait()
        nodes = Informer(client, "/api/v1/nodes", self._node)
        apis = Informer(
            client, "/apis/apiregistration.k8s.io/v1/apiservices", AggregatedApis(client).on_event
        )
        threads = [self.shared.events, self.shared.exits, server, nodes, apis]
        kubelets = functools.partial(kubelet_endpoints, client)
        threads.append(Egress(self.state, self.shared.hosts, self._port, kubelets))
        threads.append(Provisioner(self.state))
        for thread in threads:
            thread.start()
        nodes.synced.wait()
        self._heartbeat.start()
        threading.Thread(target=self._sweep, name="sweep", daemon=True).start()
        log.info("serving %d nodes; logs on port %d", len(self._pod_watches), self._port)

    def _connect(self) -> tuple[Client, str]:
        reported = ""
        while True:
            try:
                client = Client(self.state.kubeconfig_of(AGENT))
                return client, str(client.get("/version")["gitVersion"])
            except (ApiError, ApiUnavailable, OSError, ValueError) as error:
                if str(error) != reported:
                    reported = str(error)
                    log.warning("waiting for the API server: %s", error)
                time.sleep(API_WAIT_S)

    def _check_runtime(self) -> str:
        """Return the runtime's version; without a working runtime the nodes are NotReady."""
        try:
            return runtime.check_bubblewrap()
        except (runtime.RuntimeUnavailable, OSError) as error:
            self._runtime_problem = str(error)
            log.error("%s", error)
            return "unknown"

    def _runtime_error(self) -> str:
        """Return why containers cannot run; empty when they can."""
        if self._runtime_problem and time.monotonic() >= self._next_check:
            self._next_check = time.monotonic() + CHECK_S
            self._runtime_problem = ""
            self._check_runtime()
        return self._runtime_problem

    # Handlers of the watches.

    def _node(self, kind: str, node: Json) -> None:
        name = node["metadata"]["name"]
        if kind == "DELETED":
            if name in self._pod_watches:
                self._node_gone(name)
        elif is_process_node(node):
            client = self._clients.get(name)
            if client is None:
                client = NodeClient(self.state.kubeconfig_of(AGENT), name)
                self._clients[name] = client
            self._heartbeat.put(node, client)
            if name not in self._pod_watches:
                log.info("%s: serving", name)
                pods = functools.partial(self._pod, replace(self.shared, client=client))
                query = {"fieldSelector": f"spec.nodeName={name}"}
                watch = Informer(client, "/api/v1/pods", pods, query)
                self._pod_watches[name] = watch
                watch.start()

    def _node_gone(self, name: str) -> None:
        """End all pods of a deleted Node at once, as if the machine were lost."""
        log.warning("%s: node deleted; ending its pods", name)
        self._pod_watches.pop(name).stop()
        self._heartbeat.drop(name)
        with self._lock:
            for worker in self._workers.values():
                if worker.state.pod["spec"]["nodeName"] == name:
                    worker.node_deleted()

    def _pod(self, shared: AgentContext, kind: str, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        with self._lock:
            worker = self._workers.get(uid)
            if worker:
                if kind == "DELETED":
                    worker.object_deleted()
                else:
                    worker.update(pod)
                return
            place = pod_folder(self.state, pod)
            if kind == "DELETED":
                if not any(a.alive() for a in place.all_attempts()):
                    place.remove(self.state)
                    return
            elif self._is_finished(pod):
                return
            worker = PodWorker(shared, pod, self._done)
            self._workers[uid] = worker
            if kind == "DELETED":
                worker.object_deleted()
            worker.start()

    def _find_pod(self, namespace: str, name: str) -> Json | None:
        with self._lock:
            found = [w.state.pod for w in self._workers.values()]
        wanted = {"namespace": namespace, "name": name}.items()
        return next((pod for pod in found if wanted <= pod["metadata"].items()), None)

    def _done(self, worker: PodWorker) -> None:
        with self._lock:
            self._workers.pop(worker.state.uid, None)
            if worker.is_object_deleted:
                worker.state.folder.remove(self.state)

    def _is_finished(self, pod: Json) -> bool:
        """Whether a pod needs no worker: it has ended, is not being deleted and has no processes."""
        over = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if not over or pod["metadata"].get("deletionTimestamp"):
            return False
        return not any(a.alive() for a in pod_folder(self.state, pod).all_attempts())

    # Leftovers of pods that were deleted while no agent ran.

    def _sweep(self) -> None:
        """End containers whose pod or node no longer exists; remove their folders."""
        for watch in list(self._pod_watches.values()):
            watch.synced.wait()
        with self._lock:
            first = list(self._workers.values())
        for worker in first:
            worker.first_step_done.wait(SETTLE_S)
        self.shared.hosts.release()
        for place in list(pod_folders(self.state)):
            if self._orphaned(place.uid):
                log.warning("%s: pod no longer exists; removing", place.path.name)
                runtime.end_containers([a for a in place.all_attempts() if a.alive()], END_S)
                place.remove(self.state)
        prune_logs(self.state)

    def _orphaned(self, uid: str) -> bool:
        with self._lock:
            known = [watch.knows(uid) for watch in self._pod_watches.values()]
            return uid not in self._workers and not any(known)
