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
        """Return the rates of a gang of so many nodes: the mean of a Gamma posterior.

        The prior weighs as much as one event.
        `prior`: losses per node and hour that are assumed before any were seen.
        """
        per_node = (1 + self.losses) / (3600 / prior + self.node_s)
        return Outages(lost=nodes * per_node, back=OUTAGES_END_PER_HOUR / 3600)
