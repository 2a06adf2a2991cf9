"""What this node is and how it is wired, without torch: name, zone, interface, MTU, fabric."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

NODE_ENV: Final = "TRAINYARD_NODE"
"""The pod's node, from the downward API."""
ZONE_ENV: Final = "TRAINYARD_ZONE"
"""The pod's label topology.kubernetes.io/zone, which Kubernetes copies from its node since 1.35."""
POD_IP_ENV: Final = "TRAINYARD_POD_IP"

_SOCKET_ENVS: Final = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
_FABRIC: Final = Path("/sys/class/infiniband")
"""EFA and RoCE devices: their drivers register them with the kernel's RDMA subsystem."""

# linux/sockios.h
_GET_ADDRESS: Final = 0x8915
_GET_MASK: Final = 0x891B
_GET_MTU: Final = 0x8921


@dataclass(frozen=True, kw_only=True)
class Interface:
    """A network interface with an IPv4 address."""

    name: str
    network: str
    """ADDRESS/PREFIX."""
    mtu: int
    """Bytes."""


def interfaces() -> list[Interface]:
    """All of this network namespace that have an IPv4 address."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                address, mask = (_ipv4(probe, name, ask) for ask in (_GET_ADDRESS, _GET_MASK))
                network = ipaddress.ip_interface(f"{address}/{mask}").with_prefixlen
                found.append(Interface(name=name, network=network, mtu=_mtu(probe, name)))
    return found


def _ask(probe: socket.socket, name: str, request: int) -> bytes:
    return fcntl.ioctl(probe.fileno(), request, struct.pack("16s24x", name.encode()[:15]))


def _ipv4(probe: socket.socket, name: str, request: int) -> str:
    return socket.inet_ntoa(_ask(probe, name, request)[20:24])


def _mtu(probe: socket.socket, name: str) -> int:
    return int(struct.unpack_from("i", _ask(probe, name, _GET_MTU), 16)[0])


def match_interfaces(pattern: str, known: Sequence[Interface]) -> list[Interface]:
    """Those that a value of NCCL_SOCKET_IFNAME means: prefixes, `=` for whole names, `^` for all but."""
    wanted = pattern.lstrip("^=").split(",")
    exact = pattern.startswith(("=", "^="))

    def matches(one: Interface) -> bool:
        return any(one.name == w if exact else one.name.startswith(w) for w in wanted if w)

    return [one for one in known if matches(one) is not pattern.startswith("^")]


def interface_of_address(address: str, known: Sequence[Interface]) -> Interface | None:
    """The interface whose network has this address, the narrowest if several have."""
    if not address or ":" in address:
        return None
    wanted = ipaddress.ip_address(address)
    found = [one for one in known if wanted in ipaddress.ip_interface(one.network).network]
    return max(found, key=lambda one: int(one.network.partition("/")[2]), default=None)


def collective_interface(
    environment: Mapping[str, str], known: Sequence[Interface]
) -> Interface | None:
    """The interface that collectives over sockets use: the one that is set, else the pod's own.

    None: the setting matches none, or the pod's address is not known.
    """
    pattern = interface_setting(environment).partition("=")[2]
    named = match_interfaces(pattern, known) if pattern else list(known)
    own = interface_of_address(environment.get(POD_IP_ENV, ""), named)
    return own or (named[0] if pattern and named else None)


def interface_setting(environment: Mapping[str, str]) -> str:
    """`NAME=VALUE` of the variable that says which interfaces to use; empty: none does."""
    return next(
        (f"{name}={environment[name]}" for name in _SOCKET_ENVS if environment.get(name)), ""
    )


def host_facts(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Facts of this node under the names that they have in a check's line."""
    interface = collective_interface(environment, interfaces())
    wanted = "" if interface else interface_setting(environment)
    return {
        "node": environment.get(NODE_ENV) or socket.gethostname(),
        "zone": environment.get(ZONE_ENV, ""),
        "interface": interface.name if interface else "",
        "mtu": interface.mtu if interface else None,
        "fabric_devices": len(list(_FABRIC.iterdir())) if _FABRIC.is_dir() else 0,
        **({"unmatched_setting": wanted} if wanted else {}),
    }
