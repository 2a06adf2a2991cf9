"""What was paid for capacity reservations, by the Platform records of a stack.

The program publishes one record per team: the node pools by which `costCapUsd` is counted and the team's runs are
rendered. No other resource of every stack has these prices.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from .model import Resource, dig, elements
from .names import PLATFORM_RECORD, PLATFORM_RECORD_FILE

_CONFIG_MAP: Final = "kubernetes:core/v1:ConfigMap"

PaidPrices = Mapping[str, float | None]
"""USD per hour of one node by reservation id; None: the on-demand price."""


def paid_prices(resources: Sequence[Resource]) -> tuple[PaidPrices, ...]:
    """Return what each Platform record says was paid; nothing for a record that is unknown or malformed."""
    return tuple(_paid(resource) for resource in resources if _is_record(resource))


def _is_record(resource: Resource) -> bool:
    return (
        resource.type == _CONFIG_MAP and dig(resource.props, "metadata", "name") == PLATFORM_RECORD
    )


def _paid(record: Resource) -> PaidPrices:
    found: dict[str, float | None] = {}
    for reservation in _reservations(dig(record.props, "data", PLATFORM_RECORD_FILE)):
        name, usd = dig(reservation, "id"), _price(dig(reservation, "usd_per_node_hour"))
        if isinstance(name, str):
            # Pools that share a reservation: the highest price, and the on-demand price if one has none.
            other = found.get(name, usd)
            found[name] = None if usd is None or other is None else max(usd, other)
    return found


def _reservations(text: Any) -> Iterator[Any]:
    try:
        record = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return
    for pool in elements(dig(record, "platform", "pools")):
        yield dig(pool, "reservation")


def _price(usd: Any) -> float | None:
    """Return a price above 0; None for anything else, which counts as the on-demand price."""
    if isinstance(usd, bool) or not isinstance(usd, (int, float)):
        return None
    return float(usd) if math.isfinite(usd) and usd > 0 else None
