"""Kubernetes quantities: `1000m` and `1` are the same amount, written differently."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

_QUANTITY = re.compile(r"^([+-]?[0-9.]+)(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?[0-9]+)?$")
_BINARY = {
    name: Decimal(1024) ** (i + 1) for i, name in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
}
_DECIMAL = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal("1e3"),
    "M": Decimal("1e6"),
    "G": Decimal("1e9"),
    "T": Decimal("1e12"),
    "P": Decimal("1e15"),
    "E": Decimal("1e18"),
}

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
"""Fields that hold a quantity, or a map of them."""


def parse(value: Any) -> Decimal | None:
    """The amount, or None for what is no quantity."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    match = _QUANTITY.match(str(value))
    if match is None:
        return None
    number, suffix = match.groups()
    try:
        if suffix and suffix[0] in "eE" and len(suffix) > 1:
            return Decimal(number + suffix)
        return Decimal(number) * (_BINARY.get(suffix) or _DECIMAL.get(suffix) or Decimal(1))
    except ArithmeticError:
        return None


def is_quantity_path(path: tuple[str | int, ...]) -> bool:
    """Whether the value at a path is a quantity: it, or the map that it is in, is such a field."""
    return bool(path) and path[0] not in ("data", "metadata") and not _FIELDS.isdisjoint(path[-2:])


def same(first: Any, second: Any) -> bool:
    """Whether two values are the same amount."""
    amounts = parse(first), parse(second)
    return amounts[0] is not None and amounts[0] == amounts[1]
