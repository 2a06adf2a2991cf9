"""Runs of replica groups, which leave and join while the run trains."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from infra.sections.types import Image, Int, StrictModel


class ElasticRunsConfig(StrictModel):
    """A Deployment that lets groups of ended runs go that still wait for nodes; run files need it for `groups`."""

    image: Image = Field(description="the image of ops/image/Dockerfile by digest")
    """Image of the commands (ops/image/Dockerfile), by digest."""
    every_seconds: Annotated[Int, Field(ge=1, le=300)] = 30
    """Seconds between looks."""
