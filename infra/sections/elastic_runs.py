"""Runs of replica groups, which leave and join while the run trains."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from infra.sections.types import Image, Int, StrictModel


class ElasticRunsConfig(StrictModel):
    """Deletes pending groups of finished runs; required by `groups` of run files."""

    image: Image = Field(description="the image of ops/image/Dockerfile by digest")
    """Image of ops/image/Dockerfile, by digest."""
    every_seconds: Annotated[Int, Field(ge=1, le=300)] = 30
    """Polling interval in seconds."""
