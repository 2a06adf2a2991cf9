"""How often spot instances are interrupted, in the bands of AWS' Spot Instance Advisor."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Band(StrEnum):
    """Share of a type's spot instances in a region that were interrupted in the trailing month.

    Values are AWS' labels.
    """

    UP_TO_5 = "<5%"
    UP_TO_10 = "5-10%"
    UP_TO_15 = "10-15%"
    UP_TO_20 = "15-20%"
    ABOVE_20 = ">20%"


_MIDDLE_PERCENT: Final = {
    Band.UP_TO_5: 2.5,
    Band.UP_TO_10: 7.5,
    Band.UP_TO_15: 12.5,
    Band.UP_TO_20: 17.5,
    Band.ABOVE_20: 25.0,
}
"""The highest band is open: counted as 20 to 30 %."""


def relative_frequency(*bands: Band | None) -> float:
    """Return how often instances of these bands are interrupted, as a share of the highest band.

    The highest of several counts, as with prices: which of a pool's types it gets is not known before, and a gang
    stops with the first node that it loses. None, a type that AWS does not list, counts as the highest band.
    """
    highest = _MIDDLE_PERCENT[Band.ABOVE_20]
    return max((_MIDDLE_PERCENT[band] / highest if band else 1.0 for band in bands), default=1.0)
