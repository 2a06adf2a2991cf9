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
    min: Int = Field(default=2, ge=1)
    max: Int = Field(default=4, ge=1, le=1000)


class EksClusterConfig(StrictModel):
    """A cluster that the stack makes."""

    TAG: ClassVar[str] = "eks"

    provider: Literal["eks"]
    name: DnsLabel = Field(description="a DNS label")
    version: Literal["1.33", "1.34", "1.35"] = "1.35"
    """Of Kubernetes."""
    endpoint: Endpoint = ()
    """CIDR blocks that may reach the Kubernetes API from the internet. Default: none."""
    admins: tuple[RoleArn, ...] = ()
    """IAM roles that may do anything in the cluster, besides the one that creates it: that one EKS
    admits by itself, and refuses to admit twice."""
    deployers: tuple[RoleArn, ...] = ()
    """IAM roles in the Kubernetes group trainyard:deployer."""
    viewers: tuple[RoleArn, ...] = ()
    """IAM roles that may read the cluster, secrets among it: what a preview needs."""
    log_retention_days: LogDays = 90
    """Days that logs of the control plane are kept."""
    system_nodes: SystemNodesConfig = SystemNodesConfig()


class AwsConfig(StrictModel):
    """Which AWS account and region."""

    region: Str = Field(description="an AWS region such as us-east-1")
    account: AccountId = Field(description="12 digits in quotes")
    """An update with credentials of any other account is refused."""
    tags: dict[TagKey, TagValue] = Field(default={}, max_length=40)
    """Tags of everything that AWS lets tag; it allows 50, the rest are the stack's own."""


class MadeNetworkConfig(StrictModel):
    """A VPC that the stack makes."""

    TAG: ClassVar[str] = "made"

    cidr: Cidr = Field(description="a CIDR block such as 10.20.0.0/16")
    zones: tuple[Str, ...] = Field(description="a list of availability zones")
    """Append only: a zone's place fixes its addresses."""
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
    cidr: Cidr = Field(description="the VPC's CIDR block")
    private_subnets: dict[Str, SubnetId] = Field(
        description="ids of private subnets by availability zone"
    )


class ExistingNetworkConfig(StrictModel):
    """A VPC that is there already."""

    TAG: ClassVar[str] = "existing"

    existing: VpcConfig = Field(description="vpcId, cidr and privateSubnets")

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
    id: ReservationId = Field(description="cr- and 17 hexadecimal digits")

    @property
    def reservation(self) -> Reservation:
        """The reservation that a node pool launches into."""
        return Reservation(kind=self.kind, id=self.id)


class FsxConfig(StrictModel):
    """FSx for Lustre."""

    zone: Str = Field(description="an availability zone, that of the pools that train")
    throughput_per_tib: Literal[125, 250, 500, 1000] = Field(default=250, alias="throughputPerTiB")
    """MB/s for each TiB of storage."""


class EfsConfig(StrictModel):
    """EFS: slower, in every zone, paid for as it is used."""


class BucketsConfig(StrictModel):
    """S3 buckets PREFIX-datasets, PREFIX-checkpoints, PREFIX-artifacts and PREFIX-logs."""

    prefix: BucketPrefix = Field(description="the beginning of the buckets' names")
    """Unique among all of AWS's customers."""
    old_checkpoint_days: Int = Field(default=90, ge=1, le=3650)
    """Age in days at which checkpoints move to cheaper storage."""


class InterruptionConfig(StrictModel):
    """How pods learn that their spot node goes away, beyond being drained."""

    imds_sidecar: Bool = False
    """Poll the instance metadata service from each pod; pods then reach the node's credentials."""
