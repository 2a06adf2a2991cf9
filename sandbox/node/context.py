"""Objects that all pods of an agent share."""

from __future__ import annotations

import threading
import zlib
from dataclasses import dataclass
from pathlib import Path

from sandbox import paths
from sandbox.node.api import Client
from sandbox.node.events import Events
from sandbox.node.hosts import HostTable
from sandbox.node.runtime import Exits

HOST_IP = "127.0.0.1"
RETRY_S = 2.0
"""Retry interval when the API server is unavailable or a volume is not ready."""


class Addresses:
    """Assigns loopback addresses 127.1.X.Y to pods, unique among the pods of this agent.

    The first X depends on the sandbox, so that two sandboxes on a machine rarely use the same.
    """

    def __init__(self, home: Path) -> None:
        self._start = zlib.crc32(str(home).encode()) % 254
        self._next = 0
        self._owners: dict[str, str] = {}
        self._lock = threading.Lock()

    def claim(self, address: str, owner: str) -> bool:
        """Reclaim an address after a restart; return False when another pod has it."""
        with self._lock:
            return self._owners.setdefault(address, owner) == owner

    def take(self, owner: str) -> str:
        """Return a free address, preferably not a recently released one."""
        with self._lock:
            for _ in range(254 * 254):
                third, fourth = divmod(self._next, 254)
                self._next = (self._next + 1) % (254 * 254)
                address = f"127.1.{(self._start + third) % 254 + 1}.{fourth + 1}"
                if address not in self._owners:
                    self._owners[address] = owner
                    return address
        raise RuntimeError("all 64516 pod addresses are in use")

    def release(self, owner: str) -> None:
        with self._lock:
            self._owners = {a: o for a, o in self._owners.items() if o != owner}


@dataclass(frozen=True)
class AgentContext:
    """Shared by all pod workers of an agent, but for `client`: that of the pod's node."""

    client: Client
    state: paths.State
    events: Events
    exits: Exits
    addresses: Addresses
    hosts: HostTable
