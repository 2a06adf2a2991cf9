"""Kubernetes quantities ("500m", "4Gi", "1e3") as exact numbers."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from math import ceil

_QUANTITY = re.compile(r"([+-]?[0-9.]+)(?:([eE][+-]?[0-9]+)|([KMGTPE]i|[numkMGTPE]?))")
_FACTORS = {
    "": Decimal(1),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", 1)},
    **{suffix: Decimal(1000) ** -power for power, suffix in enumerate("mun", 1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
}


def parse(text: str | int | float) -> Decimal:
    """Return the value of a quantity. Raises ValueError."""
    match = _QUANTITY.fullmatch(str(text).strip())
    if match is None:
        raise ValueError(f"{text!r} is not a quantity")
    number, exponent, suffix = match.groups()
    try:
        return Decimal(number + (exponent or "")) * _FACTORS[suffix or ""]
    except InvalidOperation:
        raise ValueError(f"{text!r} is not a quantity") from None


def divide(text: str | int, divisor: str | int) -> int:
    """Return `text / divisor` rounded up, as resourceFieldRef does; a divisor of 0 means 1."""
    by = parse(divisor) or Decimal(1)
    return ceil(parse(text) / by)
