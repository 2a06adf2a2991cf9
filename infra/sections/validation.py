"""Checks of the nodes: their image, schedule and bandwidths."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from infra.sections.teams import TRAINER_IMAGE
from infra.sections.types import Bool, DnsLabel, Number, Str, StrictModel


class ValidationConfig(StrictModel):
    """Node checks."""

    image: Str = TRAINER_IMAGE
    """Trainer image: a name in `images`, or a reference by digest."""
    weekly: Bool = False
    """On Mondays also check idle nodes of pools with min above 0."""
    min_gbps: dict[DnsLabel, Annotated[Number, Field(gt=0)]] = Field(default={}, alias="minGBps")
    """By pool: bus bandwidth in GB/s below which the collective check fails. Default: only reported."""
