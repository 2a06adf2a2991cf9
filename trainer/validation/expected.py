"""Expected facts of a pool's nodes, from the stack; missing ones are not checked."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Facts that nodes must have; in JSON an object with any of these keys."""

    models: tuple[str, ...] = ()
    """Allowed GPU models as in the label gpu.model, such as a100; empty allows any."""
    mtu: int | None = None
    """MTU in bytes of the interface that collectives use."""
    zone: str = ""
    fabric_devices: int | None = None
    """Minimum number of EFA or RDMA devices in a pod."""
    transport: str = ""
    """Network that collectives between nodes must use, as transport.transport_of names it: `efa`."""
    gbps: float | None = None
    """Minimum bus bandwidth of the collective check in GB/s (10^9 bytes)."""

    @classmethod
    def from_json(cls, text: str) -> Expected:
        """Parse JSON. Raises ValueError for unknown keys and malformed text."""
        values = json.loads(text)
        if not isinstance(values, dict):
            raise ValueError("not a JSON object")
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(values.keys() - known):
            raise ValueError(f"unknown {', '.join(unknown)}")
        return cls(**values | {"models": tuple(values.get("models", ()))})
