"""The VPC: created or existing, its zones and addresses."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from infra.sections.aws import LogDays, SubnetId, VpcId
from infra.sections.types import Cidr, Str, StrictModel


class MadeNetworkConfig(StrictModel):
    """A VPC that the stack creates."""

    TAG: ClassVar[str] = "made"

    cidr: Cidr = Field(description="a CIDR block such as 10.20.0.0/16")
    """CIDR block of the VPC."""
    zones: tuple[Str, ...] = Field(description="a list of availability zones")
    """Availability zones; append only, positions determine addresses."""
    nat: Literal["single", "per-zone"] = "single"
    """One NAT gateway for all zones, or one in each."""
    flow_log_days: LogDays = 30
    """Days to keep flow logs."""

    @property
    def secondary_cidrs(self) -> tuple[str, ...]:
        """Return the other blocks of the VPC: none."""
        return ()

    @property
    def zone_names(self) -> tuple[str, ...]:
        """Return the zones in which the network has subnets."""
        return self.zones


class VpcConfig(StrictModel):
    """An existing VPC."""

    vpc_id: VpcId = Field(description="an id such as vpc-0a1b2c3d")
    """ID of the VPC."""
    cidr: Cidr = Field(description="the VPC's CIDR block")
    """Its CIDR block, such as 10.20.0.0/16."""
    secondary_cidrs: tuple[Cidr, ...] = Field(default=(), description="a list of CIDR blocks")
    """Its other blocks, such as 100.64.0.0/16; they reach the cluster's API, too."""
    private_subnets: dict[Str, SubnetId] = Field(
        description="ids of private subnets by availability zone"
    )
    """Private subnet by availability zone."""


class ExistingNetworkConfig(StrictModel):
    """An existing VPC."""

    TAG: ClassVar[str] = "existing"

    existing: VpcConfig = Field(description="vpcId, cidr, privateSubnets")
    """A VPC that exists already."""

    @property
    def cidr(self) -> str:
        """Return the VPC's CIDR block."""
        return self.existing.cidr

    @property
    def secondary_cidrs(self) -> tuple[str, ...]:
        """Return the other blocks of the VPC."""
        return self.existing.secondary_cidrs

    @property
    def zone_names(self) -> tuple[str, ...]:
        """Return the zones in which the network has subnets."""
        return tuple(self.existing.private_subnets)


def _which_network(value: Any) -> str:
    if isinstance(value, ExistingNetworkConfig):
        return ExistingNetworkConfig.TAG
    existing = isinstance(value, dict) and "existing" in value
    return ExistingNetworkConfig.TAG if existing else MadeNetworkConfig.TAG


NetworkConfig = Annotated[
    Annotated[MadeNetworkConfig, Tag(MadeNetworkConfig.TAG)]
    | Annotated[ExistingNetworkConfig, Tag(ExistingNetworkConfig.TAG)],
    Discriminator(_which_network),
]
