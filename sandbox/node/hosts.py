"""/etc/hosts of pods, in place of cluster DNS.

Each pod resolves itself, the pods of headless Services in its namespace by `hostname.subdomain`, and the
Services of its namespace by name. A Service with a cluster IP resolves to its pods, too, since no proxy
forwards cluster IPs.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.node.api import Json
from sandbox.node.records import PodFolder

CLUSTER_DOMAIN = "cluster.local"
_OWN = (
    "# Written by the node agent for this pod; kept current with the Services of its namespace.",
    "127.0.0.1\tlocalhost",
    "::1\tlocalhost ip6-localhost ip6-loopback",
)


@dataclass(frozen=True)
class Peer:
    namespace: str
    name: str
    ip: str
    hostname: str
    subdomain: str
    labels: Mapping[str, str]
    ready: bool
    created: str
    ports: Mapping[str, int] = field(default_factory=dict)
    """Its containers' ports that have names."""


def peer_from(pod: Json, ip: str, ready: bool) -> Peer:
    metadata, spec = pod["metadata"], pod["spec"]
    return Peer(
        namespace=metadata["namespace"],
        name=metadata["name"],
        ip=ip,
        hostname=spec.get("hostname") or metadata["name"],
        subdomain=spec.get("subdomain") or "",
        labels=metadata.get("labels") or {},
        ready=ready,
        created=metadata.get("creationTimestamp") or "",
        ports={
            port["name"]: port["containerPort"]
            for container in spec["containers"]
            for port in container.get("ports") or []
            if "name" in port
        },
    )


def host_name(pod: Json) -> str:
    """Return the pod's hostname: at most 63 characters."""
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])[:63].rstrip("-.")


def fqdn(hostname: str, subdomain: str, namespace: str) -> str:
    return f"{hostname}.{subdomain}.{namespace}.svc.{CLUSTER_DOMAIN}"


def render_hosts(me: Peer, peers: Iterable[Peer], services: Iterable[Json]) -> str:
    """Return the text of `me`'s /etc/hosts. Deterministic."""
    lines = list(_OWN)
    own = [me.hostname] if not me.subdomain else [fqdn(me.hostname, me.subdomain, me.namespace)]
    lines.append("\t".join([me.ip, *own, *([me.hostname] if me.subdomain else [])]))
    near = [p for p in peers if p.namespace == me.namespace]
    # The newest pod of a name wins: its predecessor may still be shutting down.
    near.sort(key=lambda p: (p.created, p.name), reverse=True)
    taken: set[str] = set()
    body: list[str] = []
    for service in services:
        if service["metadata"]["namespace"] == me.namespace:
            body += _service_lines(service, near, taken)
    return "\n".join([*lines, *sorted(body)]) + "\n"


def selected_peers(service: Json, peers: Iterable[Peer], *, unready: bool = False) -> list[Peer]:
    """Return the pods that a Service selects and that are ready, or all with `unready`."""
    spec = service.get("spec") or {}
    selector = spec.get("selector") or {}
    return [
        peer
        for peer in peers
        if selector
        and peer.namespace == service["metadata"]["namespace"]
        and selector.items() <= peer.labels.items()
        and (peer.ready or unready or spec.get("publishNotReadyAddresses"))
    ]


def _service_lines(service: Json, peers: list[Peer], taken: set[str]) -> list[str]:
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    spec = service.get("spec") or {}
    lines = []
    for peer in selected_peers(service, peers):
        lines.append("\t".join([peer.ip, *_dns_names(name, namespace)]))
        full = fqdn(peer.hostname, name, namespace)
        if spec.get("clusterIP") == "None" and peer.subdomain == name and full not in taken:
            taken.add(full)
            lines.append("\t".join([peer.ip, *_dns_names(f"{peer.hostname}.{name}", namespace)]))
    return lines


def _dns_names(name: str, namespace: str) -> list[str]:
    """Return the FQDN (the canonical name), then the forms that search domains would complete."""
    qualified = f"{name}.{namespace}"
    return [f"{qualified}.svc.{CLUSTER_DOMAIN}", f"{qualified}.svc", qualified, name]


def write_in_place(path: Path, text: str) -> bool:
    """Rewrite the file, keeping its inode (it is bind-mounted); return whether it changed."""
    data = text.encode()
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if os.pread(fd, len(data) + 1, 0) == data:
            return False
        os.pwrite(fd, data, 0)
        os.ftruncate(fd, len(data))
        return True
    finally:
        os.close(fd)


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
