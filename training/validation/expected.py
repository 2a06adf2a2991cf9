"""What the stack says of a pool's nodes; what it does not say is not checked."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Facts that nodes must show. As JSON: an object with some of these names."""

    models: tuple[str, ...] = ()
    """GPU models as in the label gpu.model: a100. Any of them; none: whatever it is."""
    mtu: int | None = None
    """Bytes, of the interface that collectives use."""
    zone: str = ""
    fabric_devices: int | None = None
    """EFA or RDMA devices that a pod sees, at least."""
    gbps: float | None = None
    """Bus bandwidth of the collective check at least, in GB/s (10^9 bytes)."""

    @classmethod
    def from_json(cls, text: str) -> Expected:
        """Raises ValueError naming what is unknown or malformed."""
        values = json.loads(text)
        if not isinstance(values, dict):
            raise ValueError("not a JSON object")
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(values.keys() - known):
            raise ValueError(f"unknown {', '.join(unknown)}")
        return cls(**values | {"models": tuple(values.get("models", ()))})
