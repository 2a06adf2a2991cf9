"""Kubernetes quantities such as 500m, 4Gi or 1e3 as exact numbers, and as millicores and bytes."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Final

GIB: Final = 1024**3
MIB: Final = 1024**2

_QUANTITY: Final = re.compile(
    r"([+-]?[0-9.]+)(?:([eE][+-]?[0-9]{1,3})|([KMGTPE]i|[numkMGTPE]?))", re.ASCII
)
_FACTORS: Final = {
    "": Decimal(1),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", 1)},
    **{suffix: Decimal(1000) ** -power for power, suffix in enumerate("mun", 1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
}


def parse(text: str | int | float) -> Decimal:
    """Return the value of a quantity. Raises ValueError with the text if it is not one."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        raise ValueError(f"{text!r} is not a quantity such as 500m, 32 or 4Ti")
    number, exponent, suffix = match.groups()
    try:
        return Decimal(number + (exponent or "")) * _FACTORS[suffix or ""]
    except InvalidOperation:
        raise ValueError(f"{text!r} is not a quantity such as 500m, 32 or 4Ti") from None


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
        unit = int(_FACTORS[suffix])
        if size and size % unit == 0:
            return f"{size // unit}{suffix}"
    return str(size)
