"""Ledger and budgets in the cluster."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from infra.sections.types import DnsLabel, Image, Int, Size, StrictModel


class CostsConfig(StrictModel):
    """A Deployment that records what nodes and runs do, and holds teams to their budgets."""

    image: Image = Field(description="the image of ops/image/Dockerfile by digest")
    """Image of the commands (ops/image/Dockerfile), by digest."""
    volume: Size = "10Gi"
    """Size of the volume with the record; a month of 10,000 runs takes less than 1Gi."""
    storage_class: DnsLabel | None = None
    """Of a volume that one node writes. Default: encrypted gp3 on a cluster that the stack makes, else the
    cluster's default class."""
    every_seconds: Annotated[Int, Field(ge=5, le=60)] = 60
    """Seconds between looks; a team near its limit is looked at sooner."""
