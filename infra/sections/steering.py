"""Runs that are moved between spot, reserved and on-demand pools."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field

from infra.sections.types import Image, Int, Number, StrictModel

_HOUR_S: Final = 3600.0


class SteeringConfig(StrictModel):
    """Moves runs between the pools of their queue, by losses, deadlines and prices."""

    image: Image = Field(description="the image of ops/image/Dockerfile by digest")
    """Image of ops/image/Dockerfile, by digest."""
    losses: Annotated[Int, Field(ge=1, le=10)] = 2
    """Losses within `withinHours` after which a run leaves a spot pool."""
    within_hours: Annotated[Number, Field(gt=0, le=168)] = 6.0
    """Period of `losses`, and how long the run stays away from the pool."""
    empty_hours: Annotated[Number, Field(gt=0, le=24)] = 1.0
    """Hours before a run tries a pool again that had no nodes in time; doubles each time in a row."""
    every_seconds: Annotated[Int, Field(ge=5, le=60)] = 30
    """Polling interval in seconds."""

    cordon_named_nodes: bool = False
    """Cordon nodes on which runs name a corrupt, repeatedly hung or slow rank; requires Prometheus
    (docs/failures.md#replace-the-node)."""

    def rules(self) -> dict[str, Any]:
        """Return the rules as the program reads them."""
        return {
            "losses": self.losses,
            "windowSeconds": self.within_hours * _HOUR_S,
            "emptySeconds": self.empty_hours * _HOUR_S,
        }
