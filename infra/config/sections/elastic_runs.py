"""Runs of replica groups, which leave and join while the run trains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

from pydantic import Field

from infra.addons.elastic_runs import ElasticRunsArgs
from infra.config.errors import ConfigIssue
from infra.config.partial import Check, PartialStack
from infra.config.sections.node_pools import read_pools
from infra.config.sections.run_page import images_by_digest
from infra.config.types import Image, Int, StrictModel


class ElasticRunsConfig(StrictModel):
    """A Deployment that lets groups of ended runs go that still wait for nodes; run files need it for `groups`."""

    image: Image = Field(description="the image of ops/image/Dockerfile by digest")
    """Image of the commands (ops/image/Dockerfile), by digest."""
    every_seconds: Annotated[Int, Field(ge=1, le=300)] = 30
    """Seconds between looks."""

    def args(self) -> ElasticRunsArgs:
        """Return the arguments of the add-on."""
        return ElasticRunsArgs(image=self.image, every_seconds=self.every_seconds)


def check_elastic_runs(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require an image by digest on real nodes, and Kueue and JobSet, whose objects the groups of a run are."""
    if not all(pool.nodes.simulated for _, pool in read_pools(stack)):
        yield from images_by_digest(stack, "elasticRuns", "image")
    if stack.raw.get("elasticRuns") is None or stack.operators is None:
        return
    for name in ("kueue", "jobset"):
        if not stack.has_operator(name):
            yield ConfigIssue(
                path="elasticRuns",
                code="operator-required",
                problem=f"operators.{name} is missing",
                valid="requires Kueue and JobSet: each group of a run is a JobSet that queues by itself",
                action=f"add {name} to operators, or remove elasticRuns",
            )


CHECKS: Final[tuple[Check, ...]] = (check_elastic_runs,)
