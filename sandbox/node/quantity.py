"""Kubernetes quantities ("500m", "4Gi", "1e3") as exact numbers."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from math import ceil

_SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}


def parse(text: str | int | float) -> Decimal:
    """Return the value of a quantity. Raises ValueError."""
    quantity = str(text).strip()
    for size in (2, 1, 0):
        suffix = quantity[len(quantity) - size :] if size else ""
        if suffix in _SUFFIXES and len(suffix) == size:
            try:
                return Decimal(quantity[: len(quantity) - size]) * _SUFFIXES[suffix]
            except InvalidOperation:
                continue
    raise ValueError(f"{text!r} is not a quantity")


def divide(text: str | int, divisor: str | int) -> int:
    """Return `text / divisor` rounded up, as resourceFieldRef does; a divisor of 0 means 1."""
    by = parse(divisor) or Decimal(1)
    return ceil(parse(text) / by)
