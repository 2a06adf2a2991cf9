"""Which pods Services lead to; keep the /etc/hosts of all pods current with it."""

from __future__ import annotations

import logging
import threading

from sandbox.node.api import Json
from sandbox.node.hosts import Peer, render_hosts, selected_peers, write_in_place
from sandbox.node.records import PodFolder

log = logging.getLogger("hosts")


class HostTable:
    """Pods with an address and the Services that select them. Thread-safe.

    Until `release`, running pods keep their file: a restarted agent learns of its pods one by one, and
    names must keep resolving meanwhile.
    """

    def __init__(self) -> None:
        self._held = True
        self._lock = threading.Lock()
        self._pods: dict[str, tuple[Peer, PodFolder]] = {}
        self._services: dict[str, Json] = {}

    def put(self, uid: str, peer: Peer, folder: PodFolder) -> None:
        with self._lock:
            entry = (peer, folder)
            if self._pods.get(uid) != entry:
                self._pods[uid] = entry
                self._rewrite(peer.namespace)

    def release(self) -> None:
        """All pods are known: rewrite all files, then on every change."""
        with self._lock:
            self._held = False
            for namespace in {peer.namespace for peer, _ in self._pods.values()}:
                self._rewrite(namespace)

    def remove(self, uid: str) -> None:
        with self._lock:
            entry = self._pods.pop(uid, None)
            if entry:
                self._rewrite(entry[0].namespace)

    def service(self, kind: str, service: Json) -> None:
        uid = service["metadata"]["uid"]
        with self._lock:
            if kind == "DELETED":
                self._services.pop(uid, None)
            else:
                self._services[uid] = service
            self._rewrite(service["metadata"]["namespace"])

    def backends(self, cluster_ip: str, port: int) -> list[tuple[str, int]]:
        """Return address and port of the pods behind a port of the Service with this address.

        Those that are ready, if one is: after a start others serve already, and no probe has told so.
        """
        with self._lock:
            peers = [peer for peer, _ in self._pods.values()]
            for service in self._services.values():
                spec = service["spec"]
                if spec.get("clusterIP") == cluster_ip:
                    targets = [
                        p.get("targetPort", port) for p in spec["ports"] if p["port"] == port
                    ]
                    return [
                        (peer.ip, number)
                        for peer in selected_peers(service, peers)
                        or selected_peers(service, peers, unready=True)
                        for target in targets
                        if isinstance(number := peer.ports.get(target, target), int)
                    ]
        return []

    def _rewrite(self, namespace: str) -> None:
        peers = [peer for peer, _ in self._pods.values() if peer.namespace == namespace]
        services = [s for s in self._services.values() if s["metadata"]["namespace"] == namespace]
        for peer, folder in self._pods.values():
            path = folder.etc / "hosts"
            try:
                if peer.namespace == namespace and not (self._held and path.stat().st_size):
                    write_in_place(path, render_hosts(peer, peers, services))
            except OSError as error:
                log.debug("%s: %s", folder.etc, error)  # the pod is being removed
