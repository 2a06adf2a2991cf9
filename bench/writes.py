"""Writes to each resource, from the API server's own counters."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

WRITES: Final = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE"})
PERIODIC: Final = "leases"
"""Written by the clock, however many gangs there are."""
_LINE: Final = re.compile(r"^apiserver_request_total\{([^}]*)\} (\S+)", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


def by_resource(metrics: str) -> Counter[str]:
    """Count writes, such as to `workloads/status`, in the text of `/metrics`.

    Refused ones count, leases do not.
    """
    found: Counter[str] = Counter()
    for text, value in _LINE.findall(metrics):
        labels = dict(_LABEL.findall(text))
        if labels["verb"] in WRITES and labels["resource"] != PERIODIC:
            subresource = labels.get("subresource")
            found[labels["resource"] + (f"/{subresource}" if subresource else "")] += int(
                float(value)
            )
    return found
