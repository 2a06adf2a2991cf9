"""Parts of a stack file that say how GPUs are offered, and what is known of their network."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from infra.config.errors import invalid
from infra.config.types import DnsLabel, Int, Str, StrictModel, matching
from infra.domain import naming
from infra.domain.gpu_sharing import GpuSharing, SharingMode, instances
from infra.domain.naming import RDMA_RESOURCES
from infra.domain.pools import Fabric

MOST_SHARES: Final = 48
"""Clients that one MPS server takes on GPUs since Volta; no pool gains by more turns either."""

Shares = Annotated[Int, Field(ge=2, le=MOST_SHARES)]


class SharingConfig(StrictModel):
    """Exactly one way to offer each GPU of a pool as several devices."""

    mig: Str | None = None
    """Profile of the instances that every GPU is cut into, such as 1g.10gb."""
    time_slicing: Shares | None = None
    """Pods that take turns on one GPU; each sees all of its memory."""
    mps: Shares | None = None
    """Pods that one GPU serves at once, each with an equal part of its memory and compute."""

    @property
    def modes(self) -> tuple[SharingMode, ...]:
        """Those that are named."""
        named = self.model_dump(by_alias=True)
        return tuple(mode for mode in SharingMode if named[mode.value] is not None)

    def sharing(self, models: tuple[str, ...]) -> GpuSharing:
        """What the pool works with. A profile that these models lack counts as one share of a GPU."""
        if self.mig is not None:
            shares = instances(self.mig, models) or 1
            return GpuSharing(mode=SharingMode.MIG, shares=shares, profile=self.mig)
        if self.mps is not None:
            return GpuSharing(mode=SharingMode.MPS, shares=self.mps)
        return GpuSharing(mode=SharingMode.TIME_SLICING, shares=self.time_slicing or 1)


class GpusConfig(StrictModel):
    """How GPUs of real nodes become devices that pods may ask for."""

    driver: Literal["image", "operator"] = "image"
    """Who brings NVIDIA's driver and container toolkit: the nodes' machine image, as on EKS, or the GPU
    operator."""
    sharing: dict[DnsLabel, SharingConfig] = Field(default={})
    """By pool. A pool that is not named: a device is a whole GPU."""


def _rdma_resource(value: str) -> str:
    name = value.removeprefix(RDMA_RESOURCES)
    if name == value or not naming.is_label_value(name):
        raise invalid(
            "rdma-resource",
            f"must be a resource of an RDMA device plugin such as {RDMA_RESOURCES}hca",
        )
    return value


Interface = Annotated[
    Str,
    AfterValidator(matching("interface", r"[A-Za-z0-9][\w.-]{0,14}", "an interface such as eth0")),
]
Adapter = Annotated[
    Str, AfterValidator(matching("adapter", r"\w[\w.-]{0,63}", "a device such as mlx5_0"))
]


class FabricConfig(StrictModel):
    """What is known of the network of nodes that exist."""

    interface: Interface | None = None
    """Network interface that pods use, such as eth0."""
    mtu: Annotated[Int, Field(ge=1280, le=9216)] | None = None
    """MTU of that interface in bytes."""
    rdma_resource: Annotated[Str, AfterValidator(_rdma_resource)] | None = None
    """With `network: roce`: the resource of the node's adapters, such as rdma/hca."""
    adapters: tuple[Adapter, ...] = ()
    """With `network: roce`: devices such as mlx5_0. Default: all of the node."""
    gid_index: Annotated[Int, Field(ge=0, le=255)] | None = None
    """With `network: roce`: index into the adapters' GID tables. Default: NCCL chooses."""

    @property
    def fabric(self) -> Fabric:
        """The facts as a pool has them."""
        return Fabric(
            interface=self.interface or "",
            mtu=self.mtu,
            rdma_resource=self.rdma_resource or "",
            adapters=self.adapters,
            gid_index=self.gid_index,
        )
