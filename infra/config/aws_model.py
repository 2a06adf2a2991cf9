"""Parts of a stack file that only a cluster on AWS has."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from infra.config.types import (
    AccountId,
    Bool,
    BucketPrefix,
    Cidr,
    DnsLabel,
    Endpoint,
    Int,
    LogDays,
    ReservationId,
    RoleArn,
    Str,
    StrictModel,
    SubnetId,
    TagKey,
    TagValue,
    VpcId,
)
from infra.domain.pools import Reservation, ReservationKind


class SystemNodesConfig(StrictModel):
    """The small on-demand CPU node group that runs what the cluster itself needs."""

    instance_types: tuple[Str, ...] = Field(default=("m6i.xlarge",), min_length=1)
    """Instance types of the group."""
    min: Int = Field(default=2, ge=1)
    """Nodes at least."""
    max: Int = Field(default=4, ge=1, le=1000)
    """Nodes at most."""


class EksClusterConfig(StrictModel):
    """A cluster that the stack makes."""

    TAG: ClassVar[str] = "eks"

    provider: Literal["eks"]
    """`eks`: a cluster that the stack creates."""
    name: DnsLabel = Field(description="a DNS label")
    """Name of the EKS cluster, and of everything that the stack names after it."""
    version: Literal["1.33", "1.34", "1.35"] = "1.35"
    """Kubernetes version."""
    endpoint: Endpoint = ()
    """CIDR blocks that may reach the Kubernetes API from the internet. Default: none, as with `private`."""
    admins: tuple[RoleArn, ...] = ()
    """IAM roles with full access to the cluster, besides the role that creates it: EKS admits that one
    automatically and rejects it here."""
    deployers: tuple[RoleArn, ...] = ()
    """IAM roles in the Kubernetes group trainyard:deployer."""
    viewers: tuple[RoleArn, ...] = ()
    """IAM roles that may read the cluster, including secrets, as previews require."""
    log_retention_days: LogDays = 90
    """Days that control plane logs are kept."""
    system_nodes: SystemNodesConfig = SystemNodesConfig()
    """On-demand CPU node group for the cluster's own controllers."""


class AwsConfig(StrictModel):
    """Which AWS account and region."""

    region: Str = Field(description="an AWS region such as us-east-1")
    """AWS region of the stack."""
    account: AccountId = Field(description="12 digits in quotes")
    """AWS account; an update with credentials of another account is rejected."""
    tags: dict[TagKey, TagValue] = Field(default={}, max_length=40)
    """Tags of all AWS resources, at most 40; the stack adds its own."""


class MadeNetworkConfig(StrictModel):
    """A VPC that the stack makes."""

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
    def zone_names(self) -> tuple[str, ...]:
        """Zones in which the network has subnets."""
        return self.zones


class VpcConfig(StrictModel):
    """A VPC that somebody else made."""

    vpc_id: VpcId = Field(description="an id such as vpc-0a1b2c3d")
    """ID of the VPC."""
    cidr: Cidr = Field(description="the VPC's CIDR block")
    """CIDR block of the VPC, such as 10.20.0.0/16."""
    private_subnets: dict[Str, SubnetId] = Field(
        description="ids of private subnets by availability zone"
    )
    """Private subnet by availability zone."""


class ExistingNetworkConfig(StrictModel):
    """A VPC that is there already."""

    TAG: ClassVar[str] = "existing"

    existing: VpcConfig = Field(description="vpcId, cidr and privateSubnets")
    """A VPC that exists already."""

    @property
    def cidr(self) -> str:
        """The VPC's addresses."""
        return self.existing.cidr

    @property
    def zone_names(self) -> tuple[str, ...]:
        """Zones in which the network has subnets."""
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


class ReservationConfig(StrictModel):
    """Capacity that was reserved."""

    kind: ReservationKind = Field(description="capacity-block or on-demand-capacity-reservation")
    """Kind of the reservation."""
    id: ReservationId = Field(description="cr- and 17 hexadecimal digits")
    """ID of the reservation."""

    @property
    def reservation(self) -> Reservation:
        """The reservation that a node pool launches into."""
        return Reservation(kind=self.kind, id=self.id)


class FsxConfig(StrictModel):
    """FSx for Lustre."""

    zone: Str = Field(description="an availability zone, that of the pools that train")
    """Zone of the file system, that of the pools that train."""
    throughput_per_tib: Literal[125, 250, 500, 1000] = Field(default=250, alias="throughputPerTiB")
    """MB/s for each TiB of storage."""


class EfsConfig(StrictModel):
    """EFS: slower, in every zone, paid for as it is used."""


class BucketsConfig(StrictModel):
    """S3 buckets PREFIX-datasets, PREFIX-checkpoints, PREFIX-artifacts and PREFIX-logs."""

    prefix: BucketPrefix = Field(description="the beginning of the buckets' names")
    """Prefix of the bucket names; it must be unique in all of AWS."""
    old_checkpoint_days: Int = Field(default=90, ge=1, le=3650)
    """Age in days at which checkpoints move to cheaper storage."""


class InterruptionConfig(StrictModel):
    """How pods learn that their spot node goes away, beyond being drained."""

    imds_sidecar: Bool = False
    """Poll the instance metadata service from each pod; pods then reach the node's credentials."""
