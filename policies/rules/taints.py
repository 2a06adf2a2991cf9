"""Taints and matching tolerations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from .model import dig, elements, mapping

_TAINT_PATTERN: Final = r"^[^=:\s]+=[^=:\s]*:(NoSchedule|NoExecute|PreferNoSchedule)$"

EKS_EFFECTS: Final = {
    "NO_SCHEDULE": "NoSchedule",
    "NO_EXECUTE": "NoExecute",
    "PREFER_NO_SCHEDULE": "PreferNoSchedule",
}
"""Kubernetes effect by its name in the EKS API."""


@dataclass(frozen=True)
class Taint:
    """A node taint."""

    key: str
    value: str
    effect: str

    @classmethod
    def parse(cls, text: str) -> Taint:
        """Parse KEY=VALUE:EFFECT, which the engine has validated against the schema's pattern."""
        rest, _, effect = text.rpartition(":")
        key, _, value = rest.partition("=")
        return cls(key, value, effect)

    @classmethod
    def read(cls, entry: Any) -> Taint:
        """Read a taint of a node, pool or flavor, with an effect of Kubernetes or EKS."""
        effect = str(dig(entry, "effect"))
        value = str(dig(entry, "value") or "")
        return cls(str(dig(entry, "key")), value, EKS_EFFECTS.get(effect, effect))

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}"

    def tolerated_by(self, toleration: Mapping[str, Any]) -> bool:
        """Match as the scheduler does: an absent effect or key matches every one."""
        if toleration.get("effect") not in (None, "", self.effect):
            return False
        exists = toleration.get("operator") == "Exists"
        key = toleration.get("key")
        if not key:
            return exists
        return key == self.key and (exists or (toleration.get("value") or "") == self.value)


def taint_schema(default: str, description: str) -> dict[str, str]:
    """Return the configuration schema of one taint."""
    return {
        "type": "string",
        "pattern": _TAINT_PATTERN,
        "default": default,
        "description": f"{description}, as KEY=VALUE:EFFECT",
    }


def tolerating(spec: Mapping[str, Any], taint: Taint) -> int | None:
    """Return the index of the first toleration that matches `taint`, else None."""
    for index, toleration in enumerate(elements(spec.get("tolerations"))):
        if taint.tolerated_by(mapping(toleration)):
            return index
    return None
