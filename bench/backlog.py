"""P9 without pods: gangs as Workloads, admitted per second, compared with a minimal setup (admission.py)."""

from __future__ import annotations

from typing import Any

from bench import admission
from bench.request import Request, Result

SIZES: dict[str, dict[str, Any]] = {
    "small": {"nodes": 40, "workloads": 80, "pairs": 1},
    "full": {"nodes": 1000, "workloads": 10_000, "pairs": 2},
}


def run(request: Request) -> Result:
    """Compare gangs without pods."""
    return admission.compare(request, pods=False)
