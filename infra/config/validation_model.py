"""Checks of the nodes, in the stack file."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from infra.config.types import Bool, DnsLabel, Number, Str, StrictModel

TRAINER_IMAGE: Final = "trainer"
"""Name in `images` of the image that checks run in unless the stack says otherwise."""


class ValidationConfig(StrictModel):
    """What proves that nodes compute and can talk: a namespace with Jobs to start."""

    image: Str = TRAINER_IMAGE
    """A name in `images`, or a reference by digest; the trainer's, for the checks are a part of it."""
    weekly: Bool = False
    """Check pools that always have nodes on Mondays, too, where nobody else wants them."""
    min_gbps: dict[DnsLabel, Annotated[Number, Field(gt=0)]] = Field(default={}, alias="minGBps")
    """By pool, the bus bandwidth in GB/s below which its collective check fails. Default: it is only told."""
