"""Kubernetes quantities as integers: millicores and bytes."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Final

GIB: Final = 1024**3
MIB: Final = 1024**2

_SUFFIXES: Final = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    "k": Decimal(1000),
    "M": Decimal(1000) ** 2,
    "G": Decimal(1000) ** 3,
    "T": Decimal(1000) ** 4,
    "P": Decimal(1000) ** 5,
    "Ki": Decimal(1024),
    "Mi": Decimal(1024) ** 2,
    "Gi": Decimal(1024) ** 3,
    "Ti": Decimal(1024) ** 4,
    "Pi": Decimal(1024) ** 5,
}
_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-zA-Z]*)")


def parse(text: str) -> Decimal:
    """Return the value of a non-negative quantity such as `500m`, `32` or `4Ti`.

    Raises ValueError if it is not one.
    """
    match = _QUANTITY.fullmatch(text)
    if not match or match[2] not in _SUFFIXES:
        raise ValueError(f"{text!r} is not a quantity such as 500m, 32 or 4Ti")
    try:
        return Decimal(match[1]) * _SUFFIXES[match[2]]
    except InvalidOperation:  # pragma: no cover - the pattern admits decimals only
        raise ValueError(f"{text!r} is not a number") from None


def millicores(text: str) -> int:
    """Return a CPU quantity in thousandths of a core, rounded down."""
    return int(parse(text) * 1000)


def bytes_(text: str) -> int:
    """Return a memory or storage quantity in bytes, rounded down."""
    return int(parse(text))


def cpu(milli: int) -> str:
    """Return millicores in the API server's shortest form: `4` or `3500m`."""
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def memory(size: int) -> str:
    """Return bytes in the largest unit that divides them: `16Gi`, `512Mi`, `1000Ki`."""
    for suffix in ("Pi", "Ti", "Gi", "Mi", "Ki"):
        unit = int(_SUFFIXES[suffix])
        if size and size % unit == 0:
            return f"{size // unit}{suffix}"
    return str(size)
