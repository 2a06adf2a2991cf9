"""Checks of the nodes: their image, schedule and bandwidths."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from infra.sections.teams import TRAINER_IMAGE
from infra.sections.types import Bool, DnsLabel, Number, Str, StrictModel


class ValidationConfig(StrictModel):
    """Checks of compute and network of the nodes: a namespace with Jobs to start."""

    image: Str = TRAINER_IMAGE
    """Trainer image, which contains the checks: a name in `images`, or a reference by digest."""
    weekly: Bool = False
    """Also check pools with min above 0 on Mondays, on nodes that no run uses."""
    min_gbps: dict[DnsLabel, Annotated[Number, Field(gt=0)]] = Field(default={}, alias="minGBps")
    """By pool, the bus bandwidth in GB/s below which its collective check fails. Default: only reported."""
