"""Loopback ports of the services: chosen once and kept, so that kubeconfigs stay valid."""

from __future__ import annotations

import json
import os
import random
import socket
from collections.abc import Collection
from pathlib import Path

LOOPBACK = "127.0.0.1"

RANGE = range(20000, 29400)
"""Below the kernel's ephemeral ports, which would take a stopped service's port, and below the rendezvous
ports of runs. `TRAINYARD_PORTS=FIRST-LAST` keeps all that a command starts to a part of it."""

NAMES = (
    "etcd",
    "etcd-peer",
    "apiserver",
    "controller-manager",
    "scheduler",
    "kwok",
    "node",
    "s3",
    "prometheus",
    "kube-state-metrics",
    "kube-state-metrics-self",
    "gpu-exporter",
)
"""Every port that a sandbox listens on."""


def service_ports(service: str) -> list[str]:
    """Return the names of a service's ports: its own name, or `SERVICE-PURPOSE`."""
    return [name for name in NAMES if service in {name, name.rpartition("-")[0]}]


def choose_ports(file: Path, in_use: frozenset[str]) -> tuple[dict[str, int], list[str]]:
    """Return the port of each name, and one line per port that had to move.

    A recorded port is kept when its own service holds it (`in_use`: names of running services) or it is
    free; a port that another program has taken is replaced.
    """
    recorded = _load(file)
    ports: dict[str, int] = {}
    moved: list[str] = []
    for name in NAMES:
        port = recorded.get(name)
        if port is not None and (name in in_use or is_free(port)) and port not in ports.values():
            ports[name] = port
            continue
        ports[name] = free_port(taken=set(recorded.values()) | set(ports.values()))
        if port is not None:
            moved.append(
                f"port {port} of {name} is taken by another program; moved to {ports[name]}"
            )
    if ports != recorded:
        partial = file.with_suffix(".partial")
        partial.write_text(json.dumps(ports, indent=1))
        partial.rename(file)
    return ports, moved


def is_free(port: int) -> bool:
    """Whether a server can listen on this loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_port(*, taken: Collection[int] = ()) -> int:
    """Return a port on which a server can listen, now and after a slow start; none of `taken`.

    The port is not held. It lies below the kernel's own range, from which any outgoing connection may take
    one before a slow program binds it. Raise OSError when none is free, ValueError for a wrong
    TRAINYARD_PORTS.
    """
    ports = _ports()
    for port in random.sample(ports, len(ports)):
        if port not in taken and is_free(port):
            return port
    raise OSError(f"no free loopback port from {ports.start} to {ports.stop - 1}")


def _ports() -> range:
    wanted = os.environ.get("TRAINYARD_PORTS", "")
    if not wanted:
        return RANGE
    first, _, last = wanted.partition("-")
    if first.isdecimal() and last.isdecimal() and int(first) <= int(last):
        ports = range(int(first), int(last) + 1)
        if ports.start in RANGE and ports[-1] in RANGE:
            return ports
    raise ValueError(
        f"TRAINYARD_PORTS: {wanted} is no range of ports; valid: FIRST-LAST between {RANGE.start} and "
        f"{RANGE.stop - 1}; correct it or unset it"
    )


def _load(file: Path) -> dict[str, int]:
    try:
        found = json.loads(file.read_text())
        return {name: int(port) for name, port in found.items() if name in NAMES}
    except (OSError, ValueError, AttributeError):
        return {}
