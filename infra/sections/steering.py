"""Runs that are moved between spot, reserved and on-demand pools."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field

from infra.sections.types import Image, Int, Number, StrictModel

_HOUR_S: Final = 3600.0


class SteeringConfig(StrictModel):
    """A Deployment that moves runs between the pools of their queue, after losses and by deadline and price."""

    image: Image = Field(description="the image of ops/image/Dockerfile by digest")
    """Image of the commands (ops/image/Dockerfile), by digest."""
    losses: Annotated[Int, Field(ge=1, le=10)] = 2
    """Losses within `withinHours` after which a run leaves a spot pool."""
    within_hours: Annotated[Number, Field(gt=0, le=168)] = 6.0
    """Also for how long the run does not return to the pool because of one of these losses."""
    empty_hours: Annotated[Number, Field(gt=0, le=24)] = 1.0
    """Hours for which a run does not try a pool again that had no nodes in time; doubles each time in a row."""
    every_seconds: Annotated[Int, Field(ge=5, le=60)] = 30
    """Seconds between looks."""

    cordon_named_nodes: bool = False
    """Whether nodes are cordoned on which runs name a rank that computes wrong values, hangs again, or stays slow
    (docs/culprits.md), and groups of elastic runs leave them; at most one node of a pool in an hour, and a tenth
    of a pool. Requires Prometheus."""

    def rules(self) -> dict[str, Any]:
        """Return the rules as the program reads them."""
        return {
            "losses": self.losses,
            "windowSeconds": self.within_hours * _HOUR_S,
            "emptySeconds": self.empty_hours * _HOUR_S,
        }
