"""Comparison of quantities in manifests: `1000m` equals `1`."""

from __future__ import annotations

import contextlib
from decimal import Decimal
from typing import Any

from infra.domain import quantity

_FIELDS = frozenset(
    {
        "allocatable",
        "borrowingLimit",
        "capacity",
        "default",
        "defaultRequest",
        "hard",
        "lendingLimit",
        "limits",
        "max",
        "maxLimitRequestRatio",
        "min",
        "nominalQuota",
        "overhead",
        "podFixed",
        "requests",
        "sizeLimit",
        "storage",
    }
)
"""Fields that hold a quantity or a map of quantities."""


def parse(value: Any) -> Decimal | None:
    """Return the amount; None for a value that is not a quantity."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    with contextlib.suppress(ValueError):
        return quantity.parse(value)
    return None


def is_quantity_path(path: tuple[str | int, ...]) -> bool:
    """Whether the value at a path is a quantity, or an entry of a map of quantities."""
    return bool(path) and path[0] not in ("data", "metadata") and not _FIELDS.isdisjoint(path[-2:])


def same(first: Any, second: Any) -> bool:
    """Whether two values are equal quantities."""
    amounts = parse(first), parse(second)
    return amounts[0] is not None and amounts[0] == amounts[1]
