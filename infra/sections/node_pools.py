"""Node pools: sizes, instance types, labels, and facts of existing nodes' network."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from infra.domain import catalog, naming
from infra.domain.catalog import ec2
from infra.domain.naming import RDMA_RESOURCES
from infra.domain.pools import (
    NODES_MAX,
    ROOT_GIB,
    Capacity,
    Fabric,
    Fallback,
    Network,
    NodePool,
    Nodes,
    Reservation,
    ReservationKind,
    Workload,
)
from infra.sections.aws import ReservationId
from infra.sections.errors import did_you_mean, invalid, one_of, shown
from infra.sections.types import (
    Bool,
    DnsLabel,
    Instant,
    Int,
    LabelKey,
    LabelValue,
    Number,
    Str,
    StrictModel,
    matching,
)


class ReservationConfig(StrictModel):
    """A capacity reservation."""

    kind: ReservationKind = Field(description="capacity-block or on-demand-capacity-reservation")
    """Kind of the reservation."""
    id: ReservationId = Field(description="cr- and 17 hexadecimal digits")
    """ID of the reservation."""
    usd_per_node_hour: Annotated[Number, Field(gt=0)] | None = None
    """Paid per node and hour, for caps and reports. Default: the on-demand price."""

    start: Instant | None = None
    """Start of a capacity block, UTC, in quotes; with `steering`, runs are admitted from then on."""
    end: Instant | None = None
    """Its end; runs save and leave 30 minutes earlier (EC2) or 40 (Karpenter)."""


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


def _instance_type(value: str) -> str:
    known = catalog.load().types
    if value not in known:
        raise invalid(
            "unknown-instance-type",
            f"must be one of {one_of(known)}",
            did_you_mean(value, known, "choose one, or add it to infra/domain/catalog.yaml"),
            f"unknown instance type {shown(value)}",
            show_value=False,
        )
    return value


InstanceTypeName = Annotated[Str, AfterValidator(_instance_type)]


class FabricConfig(StrictModel):
    """Network facts of existing nodes."""

    interface: Interface | None = None
    """Interface of pods, such as eth0."""
    mtu: Annotated[Int, Field(ge=1280, le=9216)] | None = None
    """MTU of that interface in bytes."""
    rdma_resource: Annotated[Str, AfterValidator(_rdma_resource)] | None = None
    """With `network: roce`: the resource of the node's adapters, such as rdma/hca."""
    adapters: tuple[Adapter, ...] = ()
    """With `network: roce`: devices such as mlx5_0. Default: all of the node."""
    gid_index: Annotated[Int, Field(ge=0, le=255)] | None = None
    """With `network: roce`: index into the adapters' GID tables. Default: NCCL chooses."""


class PoolConfig(StrictModel):
    """One node pool; see infra.domain.pools."""

    name: DnsLabel = Field(description="a DNS label")
    """Name of the pool; teams refer to it in `guaranteed`."""
    workload: Workload = Workload.GPU_TRAINING
    """`gpu-training`: queued training; `cpu`: other workloads."""
    capacity: Capacity = Field(description="spot or on-demand")
    """Purchase model of the nodes."""
    instance_types: tuple[InstanceTypeName, ...] = Field(
        min_length=1, description="a list of instance types of infra/domain/catalog.yaml"
    )
    """Instance types; several find spot capacity more often."""
    min: Int = Field(default=0, ge=0)
    """Minimum number of nodes."""
    max: Int = Field(ge=1, le=NODES_MAX, description="a number of nodes, at least 1")
    """Maximum number of nodes, from which quotas follow."""
    zone: DnsLabel = Field(description="an availability zone")
    """Zone of its nodes, such as us-east-1a."""
    nodes: Nodes = Nodes.EXISTING
    """What creates its nodes; `managed`: an EKS node group; `process`, `kwok`: the sandbox."""
    network: Network = Network.TCP
    """Transport of collectives between its nodes."""
    fabric: FabricConfig | None = None
    """Network facts of existing nodes. Default: unknown."""
    extra_labels: dict[LabelKey, LabelValue] = Field(default={}, alias="labels")
    """Additional labels of its nodes."""
    root_gib: Int = Field(default=ROOT_GIB, ge=50, le=16384, alias="rootGiB")
    """Size of a node's root volume in GiB."""
    placement_group: Bool = False
    """Use one cluster placement group."""
    reservation: ReservationConfig | None = None
    """Capacity reservation that the pool launches into. Default: none."""
    fallback: Fallback = Fallback.NONE
    """What a spot pool of Karpenter buys without spot capacity; `on-demand` counts in caps, limits and EC2's
    quota (docs/costs.md#spot-pools-that-fall-back-to-on-demand)."""
    topology: Bool | None = None
    """Whether Kueue places gangs by rack; not for Karpenter's nodes. Beside Karpenter's GPU pools it takes only
    runs that name its GPU model. Default: true, unless a GPU pool is Karpenter's."""
    max_unavailable: Int = Field(default=1, ge=1, le=100)
    """Nodes of a managed group that an update or repair replaces at once."""

    def pool(self, taint_key: str, taint_value: str, *, topology: bool) -> NodePool:
        """Return the pool as components take it: its own fields, and what follows from others.

        `topology`: for a pool that does not set it.
        """
        own = {name: getattr(self, name) for name in PoolConfig.model_fields}
        own["reservation"] = Reservation(**dict(self.reservation)) if self.reservation else None
        del own["topology"]
        facts = self.fabric.model_dump(exclude_none=True) if self.fabric else {}
        region = ec2.region_of_zone(self.zone) or catalog.DEFAULT_REGION
        return NodePool(
            **own | {"fabric": Fabric(**facts)},
            taint_key=taint_key,
            taint_value=taint_value,
            region=region,
            topology=topology if self.topology is None else self.topology,
        )
