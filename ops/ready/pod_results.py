"""Parse the JSON line with which a validation pod ends its log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ops.logs import sanitize
from ops.snapshot import pluralize

_KEY: Final = "validation"
_FACT_FORMATS: Final[Mapping[str, str]] = {
    "bandwidth_gbps": "{} GB/s",
    "mtu": "MTU {}",
    "restored": "{} restored",
    "tokens_per_s": "{} tokens/s",
}
"""Facts that are printed otherwise than as `NAME VALUE`."""
_COUNT_NOUNS: Final[Mapping[str, str]] = {"runs": "run", "world_size": "rank"}
"""Facts that count things, with the noun."""
_RESERVED_KEYS: Final = (_KEY, "ok", "cause", "remedy", "node")


@dataclass(frozen=True, kw_only=True)
class PodResult:
    ok: bool
    pod: str
    cause: str = ""
    remedy: str = ""
    node: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """All other keys: device, driver, model, cuda, nccl, transport, mtu, interface, world_size, bandwidth_gbps."""

    def text(self, *names: str) -> str:
        """Return those of the named facts that are present, with units, in this order."""
        known = [(name, self.facts.get(name)) for name in names]
        return ", ".join(
            _format_fact(name, value) for name, value in known if value not in (None, "")
        )


def _format_fact(name: str, value: Any) -> str:
    whole = isinstance(value, int)
    if whole and name in _COUNT_NOUNS:
        return pluralize(value, _COUNT_NOUNS[name])
    if whole and name == "bytes":
        return format_bytes(value)
    if whole and name == "memlock":
        return f"memlock {format_bytes(value)}"
    return _FACT_FORMATS.get(name, f"{name} {{}}").format(format_value(value))


def format_bytes(count: float) -> str:
    """Format bytes in the largest fitting decimal unit."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.4g} {unit}"
        count /= 1000
    return f"{count:.4g} TB"


def format_value(value: Any) -> str:
    """Format a fact for output."""
    return f"{value:.4g}" if isinstance(value, float) else sanitize(str(value))


def parse_log(log: str, pod: str) -> PodResult | None:
    """Return the last validation line of a log; None if there is none."""
    for text in reversed(log.splitlines()):
        if text.startswith("{") and (found := _parse_line(text, pod)):
            return found
    return None


def _parse_line(text: str, pod: str) -> PodResult | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    if not isinstance(found, dict) or _KEY not in found:
        return None
    return PodResult(
        ok=found.get("ok") is True,
        pod=pod,
        cause=sanitize(str(found.get("cause") or "")),
        remedy=sanitize(str(found.get("remedy") or "")),
        node=sanitize(str(found.get("node") or "")),
        facts={key: value for key, value in found.items() if key not in _RESERVED_KEYS},
    )


def shared_facts(lines: Iterable[PodResult]) -> dict[str, Any]:
    """Return the facts with the same value in all results."""
    found = list(lines)
    first: Mapping[str, Any] = found[0].facts if found else {}
    return {
        key: value
        for key, value in first.items()
        if all(line.facts.get(key) == value for line in found)
    }
