"""The VPC: created or existing, its zones and addresses."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from pydantic import Discriminator, Field, Tag

from infra.config.aws_types import LogDays, SubnetId, VpcId
from infra.config.errors import ConfigIssue, shown
from infra.config.partial import UNKNOWN, Check, PartialStack
from infra.config.sections.aws import read_aws
from infra.config.types import Cidr, Str, StrictModel
from infra.domain.catalog import ec2

if TYPE_CHECKING:
    from infra.sites.aws.existing_network import ExistingNetworkArgs
    from infra.sites.aws.network import NetworkArgs


class MadeNetworkConfig(StrictModel):
    """A VPC that the stack creates."""

    NEUTRAL: ClassVar[Mapping[str, Any]] = {"cidr": "10.0.0.0/16", "zones": [UNKNOWN]}

    TAG: ClassVar[str] = "made"

    cidr: Cidr = Field(description="a CIDR block such as 10.20.0.0/16")
    """CIDR block of the VPC."""
    zones: tuple[Str, ...] = Field(description="a list of availability zones")
    """Availability zones. Append only: a zone's position determines its addresses."""
    nat: Literal["single", "per-zone"] = "single"
    """One NAT gateway for all zones, or one in each."""
    flow_log_days: LogDays = 30
    """Days that records of network flows are kept."""

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
    """CIDR block of the VPC, such as 10.20.0.0/16."""
    secondary_cidrs: tuple[Cidr, ...] = Field(default=(), description="a list of CIDR blocks")
    """Other CIDR blocks of the VPC, such as 100.64.0.0/16; addresses in them reach the cluster's API, too."""
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


_PRIVATE: Final = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")


def _zone_paths(stack: PartialStack) -> list[tuple[str, str]]:
    """Return the path and name of every zone of the network."""
    network = read_network(stack)
    if isinstance(network, MadeNetworkConfig):
        return [(f"network.zones[{i}]", zone) for i, zone in enumerate(read_zones(stack))]
    return [(f"network.existing.privateSubnets.{zone}", zone) for zone in read_zones(stack)]


def check_zones(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require unique zones of the region, as many as a control plane needs."""
    from infra.sites.aws import addresses

    network = read_network(stack)
    aws = read_aws(stack)
    if not network or UNKNOWN in read_zones(stack):
        return
    own = aws.region if aws and aws.region in ec2.REGIONS else None
    seen: set[str] = set()
    for path, zone in _zone_paths(stack):
        if own and ec2.region_of_zone(zone) != own:
            yield ConfigIssue(
                path=path,
                code="zone-outside-region",
                problem=f"{shown(zone)} is not in {own}",
                valid=f"must be a zone of aws.region, such as {own}a",
                action="correct the zone or the region",
            )
        if zone in seen:
            yield ConfigIssue(
                path=path,
                code="duplicate",
                problem=f"{shown(zone)} is listed twice",
                valid="zones must be unique",
                action="remove it",
            )
        seen.add(zone)
    if not addresses.MIN_ZONES <= len(seen) <= addresses.MAX_ZONES:
        made = isinstance(network, MadeNetworkConfig)
        yield ConfigIssue(
            path="network.zones" if made else "network.existing.privateSubnets",
            code="zone-count",
            problem=f"{len(seen)} {'zone' if len(seen) == 1 else 'zones'}",
            valid=f"must be {addresses.MIN_ZONES} to {addresses.MAX_ZONES} zones: the "
            "EKS control plane spans two",
            action="add a zone of the region" if len(seen) < 2 else "remove some",
        )


def check_vpc_addresses(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require private IPv4 blocks of a valid size that overlap neither Service ranges nor each other."""
    network = read_network(stack)
    if not network or network.cidr == UNKNOWN:
        return
    made = isinstance(network, MadeNetworkConfig)
    blocks = {"network.cidr" if made else "network.existing.cidr": network.cidr}
    for index, cidr in enumerate(network.secondary_cidrs):
        blocks[f"network.existing.secondaryCidrs[{index}]"] = cidr
    seen: list[ipaddress.IPv4Network] = []
    for path, cidr in blocks.items():
        block = ipaddress.ip_network(cidr)
        if isinstance(block, ipaddress.IPv4Network):
            yield from _block_issues(path, block, seen, made=made)
            seen.append(block)
        else:
            yield ConfigIssue(
                path=path,
                code="not-ipv4",
                problem=f"{shown(str(block))} is not an IPv4 block",
                valid="must be an IPv4 block such as 10.20.0.0/16",
                action="choose one from 10.0.0.0/8",
            )


def _block_issues(
    path: str, block: ipaddress.IPv4Network, seen: list[ipaddress.IPv4Network], *, made: bool
) -> Iterator[ConfigIssue]:
    """Yield what is wrong with a block of a VPC that has those `seen` already."""
    from infra.sites.aws import addresses

    if made and not any(block.subnet_of(ipaddress.IPv4Network(r)) for r in _PRIVATE):
        yield ConfigIssue(
            path=path,
            code="public-cidr",
            problem=f"{block} is public",
            valid=f"must be part of {', '.join(_PRIVATE)}",
            action="choose one that no connected network uses",
        )
    if made and not addresses.LARGEST <= block.prefixlen <= addresses.SMALLEST:
        small = block.prefixlen > addresses.SMALLEST
        yield ConfigIssue(
            path=path,
            code="cidr-size",
            problem=f"{block} is a /{block.prefixlen}",
            valid=f"must be /{addresses.LARGEST} to /{addresses.SMALLEST}",
            action=f"choose a {'larger' if small else 'smaller'} block",
        )
    if block.overlaps(addresses.SERVICES):
        yield ConfigIssue(
            path=path,
            code="cidr-overlap",
            problem=f"{block} overlaps {addresses.SERVICES}",
            valid=f"must not overlap {addresses.SERVICES}, the range of Kubernetes Services",
            action="choose one from 10.0.0.0/8",
        )
    if other := next((one for one in seen if block.overlaps(one)), None):
        yield ConfigIssue(
            path=path,
            code="cidr-overlap",
            problem=f"{block} overlaps {other}",
            valid="blocks of a VPC must not overlap",
            action="list the VPC's blocks, each once",
        )


def check_existing_subnets(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require one subnet per zone of an existing network."""
    network = read_network(stack)
    if not network or isinstance(network, MadeNetworkConfig):
        return
    seen: dict[str, str] = {}
    for zone, subnet in network.existing.private_subnets.items():
        if subnet in seen:
            yield ConfigIssue(
                path=f"network.existing.privateSubnets.{zone}",
                code="duplicate",
                problem=f"{subnet} is already used by {seen[subnet]}",
                valid="each zone requires its own subnet",
                action="name a subnet of that zone",
            )
        seen.setdefault(subnet, zone)


def read_network(stack: PartialStack) -> MadeNetworkConfig | ExistingNetworkConfig | None:
    """Return the section `network` of a cluster on EKS."""
    if not stack.on_eks:
        return None
    raw = stack.raw.get("network")
    if isinstance(raw, dict) and "existing" in raw:
        return stack.section("network", ExistingNetworkConfig)
    return stack.section("network", MadeNetworkConfig)


def read_zones(stack: PartialStack) -> tuple[str, ...]:
    """Return the zones in which the network has subnets; none when that is not known."""
    network = read_network(stack)
    return network.zone_names if network else ()


def network_args(
    network: MadeNetworkConfig | ExistingNetworkConfig, cluster: str, account: str, region: str
) -> NetworkArgs | ExistingNetworkArgs:
    """Return the arguments of the VPC."""
    from infra.sites.aws.existing_network import ExistingNetworkArgs  # imports pulumi_aws
    from infra.sites.aws.network import Nat, NetworkArgs

    if isinstance(network, MadeNetworkConfig):
        return NetworkArgs(
            cluster=cluster,
            account=account,
            region=region,
            cidr=network.cidr,
            zones=network.zones,
            nat=Nat(network.nat),
            flow_log_days=network.flow_log_days,
        )
    return ExistingNetworkArgs(
        cluster=cluster,
        vpc_id=network.existing.vpc_id,
        cidrs=(network.existing.cidr, *network.existing.secondary_cidrs),
        private_subnets=network.existing.private_subnets,
    )


CHECKS: Final[tuple[Check, ...]] = (
    check_zones,
    check_vpc_addresses,
    check_existing_subnets,
)
