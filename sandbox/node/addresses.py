"""Pod addresses: loopback addresses 127.1.X.Y, unique among the pods of this agent."""

from __future__ import annotations

import threading
import zlib
from pathlib import Path


class Addresses:
    """Assigns addresses. The first X depends on the sandbox, so that two sandboxes on a machine rarely
    use the same."""

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
        """Release the address of `owner`."""
        with self._lock:
            self._owners = {a: o for a, o in self._owners.items() if o != owner}
