"""Writes to the API server, from its own histograms: how long they took, and to what."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

HISTOGRAM: Final = "apiserver_request_duration_seconds_bucket"
WRITES: Final = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE"})
PERIODIC: Final = "leases"
"""Written by the clock, however many gangs there are."""
_LINE: Final = re.compile(HISTOGRAM + r"\{(?P<labels>[^}]*)\} (?P<value>\S+)")
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')

Buckets = Mapping[float, float]
"""Requests that took at most so many seconds, cumulative."""


def write_buckets(metrics: str) -> dict[float, float]:
    """The buckets of all writes, from the text of `/metrics`."""
    found: defaultdict[float, float] = defaultdict(float)
    for labels, count in _writes(metrics):
        found[float(labels["le"])] += count
    return dict(found)


def writes_by_resource(metrics: str) -> Counter[str]:
    """Number of writes to each resource, such as `workloads/status`; refused ones count, leases do not."""
    found: Counter[str] = Counter()
    for labels, count in _writes(metrics):
        if math.isinf(float(labels["le"])) and labels["resource"] != PERIODIC:
            subresource = labels.get("subresource")
            found[labels["resource"] + (f"/{subresource}" if subresource else "")] += int(count)
    return found


def _writes(metrics: str) -> Iterator[tuple[dict[str, str], float]]:
    """Labels and value of each bucket of writes."""
    for match in _LINE.finditer(metrics):
        labels = dict(_LABEL.findall(match["labels"]))
        if labels["verb"] in WRITES:
            yield labels, float(match["value"])


def difference(before: Buckets, after: Buckets) -> dict[float, float]:
    """The buckets of what came in between."""
    return {bound: after[bound] - before.get(bound, 0.0) for bound in after}


def quantile(buckets: Buckets, part: float) -> float:
    """The duration, in seconds, that this part of the requests did not exceed; linear within a bucket.

    NaN without requests. A bound of infinity is answered with the bound before it.
    """
    bounds = sorted(buckets)
    if not bounds or buckets[bounds[-1]] <= 0:
        return math.nan
    wanted = part * buckets[bounds[-1]]
    lower, below = 0.0, 0.0
    for bound in bounds:
        count = buckets[bound]
        if count >= wanted:
            if math.isinf(bound) or count == below:
                return lower
            return lower + (bound - lower) * (wanted - below) / (count - below)
        lower, below = bound, count
    return lower
