"""Ledger and budgets in the cluster."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from infra.sections.types import DnsLabel, Image, Int, Size, StrictModel


class CostsConfig(StrictModel):
    """Records costs and enforces budgets in the cluster."""

    image: Image = Field(description="the image of ops/image/Dockerfile by digest")
    """Image of ops/image/Dockerfile, by digest."""
    volume: Size = "10Gi"
    """Size of the record's volume; 10,000 runs take less than 1Gi."""
    storage_class: DnsLabel | None = None
    """StorageClass for ReadWriteOnce volumes. Default: encrypted gp3 on a cluster of the stack, else the
    cluster's default."""
    every_seconds: Annotated[Int, Field(ge=5, le=60)] = 60
    """Polling interval in seconds; shorter for a team near its limit."""
