"""How GPUs are offered to pods: the driver and sharing modes."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from infra.domain.gpu_sharing import GpuSharing, SharingMode, instances
from infra.sections.types import DnsLabel, Int, Str, StrictModel

MOST_SHARES: Final = 48
"""Clients of one MPS server on GPUs since Volta; more time slices do not help either."""


Shares = Annotated[Int, Field(ge=2, le=MOST_SHARES)]


class SharingConfig(StrictModel):
    """Exactly one mode of offering each GPU of a pool as several devices."""

    mig: Str | None = None
    """MIG profile of every GPU, such as 1g.10gb."""
    time_slicing: Shares | None = None
    """Pods per GPU by time-slicing; each sees all of its memory."""
    mps: Shares | None = None
    """Pods per GPU by MPS, each with an equal part of memory and compute."""

    @property
    def modes(self) -> tuple[SharingMode, ...]:
        """Return the modes that are set."""
        named = self.model_dump(by_alias=True)
        return tuple(mode for mode in SharingMode if named[mode.value] is not None)

    def sharing(self, models: tuple[str, ...]) -> GpuSharing:
        """Return the sharing of a pool; a profile that the models lack counts as one share of a GPU."""
        if self.mig is not None:
            shares = instances(self.mig, models) or 1
            return GpuSharing(mode=SharingMode.MIG, shares=shares, profile=self.mig)
        if self.mps is not None:
            return GpuSharing(mode=SharingMode.MPS, shares=self.mps)
        return GpuSharing(mode=SharingMode.TIME_SLICING, shares=self.time_slicing or 1)


class GpusConfig(StrictModel):
    """How GPUs of real nodes become devices that pods can request."""

    driver: Literal["image", "operator"] = "image"
    """What installs NVIDIA's driver and toolkit: the machine image, as on EKS, or the GPU operator."""
    sharing: dict[DnsLabel, SharingConfig] = Field(default={})
    """Sharing mode by pool. Default of a pool: each device is a whole GPU."""
