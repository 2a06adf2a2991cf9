"""/etc/hosts of pods: what cluster DNS would answer, for machines where there is no DNS of the cluster.

Each pod knows itself, the pods of headless Services in its own namespace by `hostname.subdomain`, and
the Services of its namespace by name. A Service with a cluster IP resolves to its pods as well: no
proxy forwards cluster IPs here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.node.api import Json

CLUSTER_DOMAIN = "cluster.local"
_OWN = (
    "# Written by the node agent for this pod; kept current with the Services of its namespace.",
    "127.0.0.1\tlocalhost",
    "::1\tlocalhost ip6-localhost ip6-loopback",
)


@dataclass(frozen=True)
class Peer:
    """A pod as name resolution sees it."""

    namespace: str
    name: str
    ip: str
    hostname: str
    subdomain: str
    labels: Mapping[str, str]
    ready: bool
    created: str


def peer_from(pod: Json, ip: str, ready: bool) -> Peer:
    """The Peer of a Pod object."""
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
    )


def host_name(pod: Json) -> str:
    """What `hostname` says in the pod: at most 63 characters, the FQDN if the spec asks for it."""
    spec = pod["spec"]
    short = str(spec.get("hostname") or pod["metadata"]["name"])[:63].rstrip("-.")
    if spec.get("setHostnameAsFQDN") and spec.get("subdomain"):
        return fqdn(short, spec["subdomain"], pod["metadata"]["namespace"])
    return short


def fqdn(hostname: str, subdomain: str, namespace: str) -> str:
    return f"{hostname}.{subdomain}.{namespace}.svc.{CLUSTER_DOMAIN}"


def render_hosts(
    me: Peer, peers: Iterable[Peer], services: Iterable[Json], aliases: list[Json] | None
) -> str:
    """The text of `me`'s /etc/hosts; `aliases` is spec.hostAliases. Same input, same text."""
    lines = list(_OWN)
    own = [me.hostname] if not me.subdomain else [fqdn(me.hostname, me.subdomain, me.namespace)]
    lines.append("\t".join([me.ip, *own, *([me.hostname] if me.subdomain else [])]))
    near = [p for p in peers if p.namespace == me.namespace]
    # The newest pod of a name answers to it: its predecessor may still be shutting down.
    near.sort(key=lambda p: (p.created, p.name), reverse=True)
    taken: set[str] = set()
    body: list[str] = []
    for service in services:
        if service["metadata"]["namespace"] == me.namespace:
            body += _service_lines(service, near, taken)
    lines += sorted(body)
    for alias in aliases or []:
        lines.append("\t".join([alias["ip"], *(alias.get("hostnames") or [])]))
    return "\n".join(lines) + "\n"


def _service_lines(service: Json, peers: list[Peer], taken: set[str]) -> list[str]:
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    spec = service.get("spec") or {}
    selector = spec.get("selector") or {}
    if not selector:
        return []
    chosen = [
        p
        for p in peers
        if selector.items() <= p.labels.items()
        and (p.ready or spec.get("publishNotReadyAddresses"))
    ]
    lines = []
    for peer in chosen:
        lines.append("\t".join([peer.ip, *_dns_names(name, namespace)]))
        full = fqdn(peer.hostname, name, namespace)
        if spec.get("clusterIP") == "None" and peer.subdomain == name and full not in taken:
            taken.add(full)
            lines.append("\t".join([peer.ip, *_dns_names(f"{peer.hostname}.{name}", namespace)]))
    return lines


def _dns_names(name: str, namespace: str) -> list[str]:
    """The FQDN first (it is the canonical name), then what the search domains would complete."""
    qualified = f"{name}.{namespace}"
    return [f"{qualified}.svc.{CLUSTER_DOMAIN}", f"{qualified}.svc", qualified, name]


def write_in_place(path: Path, text: str) -> bool:
    """Rewrites the file without a new inode (it is bind-mounted into containers); True if changed."""
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
