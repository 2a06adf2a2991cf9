"""Runs that are moved between spot, reserved and on-demand pools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final

from pydantic import Field

from infra.config.errors import ConfigIssue
from infra.config.partial import Check, PartialStack
from infra.config.sections.run_page import images_by_digest
from infra.config.types import Image, Int, Number, StrictModel

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


def check_steering(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require an image by digest, and Kueue, whose Workloads it writes."""
    yield from images_by_digest(stack, "steering", "image")
    wanted = stack.raw.get("steering") is not None and stack.operators is not None
    if wanted and not stack.has_operator("kueue"):
        yield ConfigIssue(
            path="steering",
            code="operator-required",
            problem="operators.kueue is missing",
            valid="requires Kueue, between whose flavors it moves runs",
            action="add kueue to operators, or remove steering",
        )
    section = stack.section("steering", SteeringConfig)
    cordons = section is not None and section.cordon_named_nodes
    if cordons and stack.operators is not None and not stack.has_operator("kubePrometheusStack"):
        yield ConfigIssue(
            path="steering.cordonNamedNodes",
            code="operator-required",
            problem="operators.kubePrometheusStack is missing",
            valid="requires Prometheus, in which runs name ranks",
            action="add kubePrometheusStack to operators, or remove cordonNamedNodes",
        )


CHECKS: Final[tuple[Check, ...]] = (check_steering,)
