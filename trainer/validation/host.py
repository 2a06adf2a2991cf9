"""Facts of this node, without torch, and of its devices: what is compared and reported."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import re
import resource
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

NODE_ENV: Final = "TRAINYARD_NODE"
"""The pod's node, from the downward API."""
ZONE_ENV: Final = "TRAINYARD_ZONE"
"""The pod's label topology.kubernetes.io/zone, which Kubernetes copies from its node since 1.35."""
POD_IP_ENV: Final = "TRAINYARD_POD_IP"

_SOCKET_ENVS: Final = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
_CPU_INFO: Final = Path("/proc/cpuinfo")
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
    """Return interfaces of this network namespace with an IPv4 address."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            asked = struct.pack("16s24x", name.encode()[:15])
            with contextlib.suppress(OSError):
                address, mask, mtu = (
                    fcntl.ioctl(probe.fileno(), request, asked)
                    for request in (_GET_ADDRESS, _GET_MASK, _GET_MTU)
                )
                pair = f"{socket.inet_ntoa(address[20:24])}/{socket.inet_ntoa(mask[20:24])}"
                network = ipaddress.ip_interface(pair).with_prefixlen
                [size] = struct.unpack_from("i", mtu, 16)
                found.append(Interface(name=name, network=network, mtu=size))
    return found


def match_interfaces(pattern: str, known: Sequence[Interface]) -> list[Interface]:
    """Return interfaces matching NCCL_SOCKET_IFNAME: prefixes, `=` for exact names, `^` to exclude."""
    wanted = pattern.lstrip("^=").split(",")
    exact = pattern.startswith(("=", "^="))

    def matches(one: Interface) -> bool:
        return any(one.name == w if exact else one.name.startswith(w) for w in wanted if w)

    return [one for one in known if matches(one) is not pattern.startswith("^")]


def interface_of_address(address: str, known: Sequence[Interface]) -> Interface | None:
    """Return the interface with the narrowest network that contains the address."""
    if not address or ":" in address:
        return None
    wanted = ipaddress.ip_address(address)
    found = [one for one in known if wanted in ipaddress.ip_interface(one.network).network]
    return max(found, key=lambda one: int(one.network.partition("/")[2]), default=None)


def collective_interface(
    environment: Mapping[str, str], known: Sequence[Interface]
) -> Interface | None:
    """Return the interface of socket collectives: the configured one, else the pod's own.

    None if the setting matches no interface or the pod's address is unknown.
    """
    pattern = interface_setting(environment).partition("=")[2]
    named = match_interfaces(pattern, known) if pattern else list(known)
    own = interface_of_address(environment.get(POD_IP_ENV, ""), named)
    return own or (named[0] if pattern and named else None)


def interface_setting(environment: Mapping[str, str]) -> str:
    """Return `NAME=VALUE` of the variable that selects interfaces; empty if none is set."""
    return next(
        (f"{name}={environment[name]}" for name in _SOCKET_ENVS if environment.get(name)), ""
    )


def locked_memory_limit() -> int | str:
    """Return how many bytes a process here may lock, or `unlimited`: RLIMIT_MEMLOCK, as `ulimit -l`."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return "unlimited" if soft == resource.RLIM_INFINITY else soft


def host_facts(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return facts of this node by their names in a check's result line."""
    interface = collective_interface(environment, interfaces())
    wanted = "" if interface else interface_setting(environment)
    return {
        "node": environment.get(NODE_ENV) or socket.gethostname(),
        "zone": environment.get(ZONE_ENV, ""),
        "interface": interface.name if interface else "",
        "mtu": interface.mtu if interface else None,
        "fabric_devices": len(list(_FABRIC.iterdir())) if _FABRIC.is_dir() else 0,
        "memlock": locked_memory_limit(),
        **({"unmatched_setting": wanted} if wanted else {}),
    }


def device_facts(device: torch.device) -> dict[str, Any]:
    """Return facts by their names in a check's result line; empty text if unknown."""
    import torch

    if device.type != "cuda":
        return {"device": "cpu", "model": _cpu_model(), "driver": "", "cuda": "", "nccl": ""}
    return {
        "device": "cuda",
        "model": torch.cuda.get_device_name(device),
        "driver": _driver(),
        "cuda": str(torch.version.cuda or ""),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),  # type: ignore[no-untyped-call]
    }


def _driver() -> str:
    """Return the version of the node's driver from NVML."""
    with contextlib.suppress(Exception):  # a missing fact must not fail the check
        import pynvml  # type: ignore[import-untyped]

        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    return ""


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", _CPU_INFO.read_text(), re.MULTILINE)
        if found:
            return found[1].strip()
    return ""
