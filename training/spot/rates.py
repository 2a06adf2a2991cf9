"""How often a pool's spot capacity is lost and how long it is missing, learnt while it is observed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

INTERRUPTIONS_PER_NODE_HOUR: Final = 0.2
"""Prior where no more is known: between the extremes of recorded traces of 2022 and 2023 (SkyPilot's spot-traces:
0.06 to 1.4)."""
OUTAGES_END_PER_HOUR: Final = 0.2
"""Prior: capacity of one node is missing as long as it is there; recorded traces hold both extremes."""
NOTICED: Final = 0.9
"""Share of losses with a notice: AWS announces most reclaims two minutes ahead, hardware failures never."""
HALF_LIFE_S: Final = 7 * 24 * 3600.0
"""Age at which an observation counts half: markets have weekly cycles and change over months."""


def prior_losses_per_hour(nodes: int) -> float:
    """Losses per hour of a gang that stops when any of its nodes is reclaimed."""
    return nodes * INTERRUPTIONS_PER_NODE_HOUR


@dataclass(frozen=True, kw_only=True)
class Outages:
    """Rates of a pool's losses and returns, per second."""

    lost: float
    """While capacity is available."""
    back: float
    """While it is not."""


def outages(losses_per_hour: float) -> Outages:
    """Return the rates of a pool that was not observed yet, above 0 losses per hour of the gang."""
    return Outages(lost=losses_per_hour / 3600, back=OUTAGES_END_PER_HOUR / 3600)


class Observed:
    """Losses and returns of one pool in one zone, or of several zones taken together.

    The estimate is the mean of a Gamma posterior whose prior weighs as much as one event; older observations
    fade with `HALF_LIFE_S`.
    """

    def __init__(self, nodes: int, losses_per_hour: float | None = None) -> None:
        rate = prior_losses_per_hour(nodes) if losses_per_hour is None else losses_per_hour
        self._prior = outages(rate)
        self._there_s = self._missing_s = 0.0
        self._losses = self._returns = 0.0
        self._was: bool | None = None

    def add(self, there: bool, seconds: float) -> None:
        """Add an interval, in order of time, in which the gang's capacity was there or was not."""
        fade = math.exp(-math.log(2) * seconds / HALF_LIFE_S)
        self._there_s = self._there_s * fade + (seconds if there else 0)
        self._missing_s = self._missing_s * fade + (0 if there else seconds)
        self._losses = self._losses * fade + (self._was is True and not there)
        self._returns = self._returns * fade + (self._was is False and there)
        self._was = there

    def rates(self) -> Outages:
        """Return the rates as known now."""
        return Outages(
            lost=(1 + self._losses) / (1 / self._prior.lost + self._there_s),
            back=(1 + self._returns) / (1 / self._prior.back + self._missing_s),
        )


@dataclass(frozen=True, kw_only=True)
class Exposure:
    """What was seen of the nodes of one pool, type and zone; older observations fade with `HALF_LIFE_S`."""

    node_s: float = 0.0
    """Seconds in which nodes were there, summed over nodes."""
    losses: float = 0.0
    """Nodes that were reclaimed or failed while a run held them."""

    def after(self, seconds: float, nodes: int, losses: int) -> Exposure:
        """Return it after so many seconds with so many nodes, of which `losses` were lost at the end."""
        fade = math.exp(-math.log(2) * seconds / HALF_LIFE_S)
        return Exposure(
            node_s=self.node_s * fade + nodes * seconds, losses=self.losses * fade + losses
        )

    def __add__(self, other: Exposure) -> Exposure:
        """Return both together, as of the types and zones of one pool."""
        return Exposure(node_s=self.node_s + other.node_s, losses=self.losses + other.losses)

    def rates(self, nodes: int, prior: float = INTERRUPTIONS_PER_NODE_HOUR) -> Outages:
        """Return the rates of a gang of so many nodes: the mean of a Gamma posterior, as in `Observed`.

        `prior`: losses per node and hour that are assumed before any were seen.
        """
        per_node = (1 + self.losses) / (3600 / prior + self.node_s)
        return Outages(lost=nodes * per_node, back=OUTAGES_END_PER_HOUR / 3600)
