"""Node pools: the source of labels, taints, tolerations, flavors and quotas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum, auto
from typing import Any, Final

from infra.domain import catalog, naming
from infra.domain.catalog import InstanceType
from infra.domain.catalog.interruptions import Band
from infra.domain.gpu_sharing import GpuSharing, SharingMode

NODES_MAX: Final = 100_000
"""Nodes of the largest cluster that EKS supports."""

ROOT_GIB: Final = 300
"""Default size of root volumes: nodes keep several training images of tens of GiB."""


class Capacity(StrEnum):
    """Capacity type of a pool's nodes."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"


class PurchaseModel(Enum):
    """Purchase model of a pool's nodes."""

    SPOT = auto()
    RESERVED = auto()
    """Paid for in advance."""
    HOURLY = auto()
    """On-demand, paid per hour of use."""

    @property
    def capacity(self) -> Capacity:
        return Capacity.SPOT if self is PurchaseModel.SPOT else Capacity.ON_DEMAND


class Fallback(StrEnum):
    """What a spot pool does where the cloud has no spot capacity."""

    NONE = "none"
    """Its runs wait, or are admitted to another pool."""
    ON_DEMAND = "on-demand"
    """It buys on-demand nodes."""


class Workload(StrEnum):
    """Workload of a pool."""

    GPU_TRAINING = "gpu-training"
    CPU = "cpu"


class Nodes(StrEnum):
    """Source of a pool's nodes."""

    EXISTING = "existing"
    """Existing nodes, which the pool describes."""
    MANAGED = "managed"
    """Created by an EKS managed node group."""
    KARPENTER = "karpenter"
    """Created by Karpenter for pending pods."""
    PROCESS = "process"
    """Simulated; pods run as local processes."""
    KWOK = "kwok"
    """Simulated; pods only have a status."""

    @property
    def simulated(self) -> bool:
        """Whether the stack creates Node objects without machines."""
        return self in (Nodes.PROCESS, Nodes.KWOK)


class Autoscaler(StrEnum):
    """Autoscaler of managed node groups and Karpenter pools."""

    KARPENTER = "karpenter"
    CLUSTER_AUTOSCALER = "cluster-autoscaler"
    NONE = "none"


class ReservationKind(StrEnum):
    """Kind of a capacity reservation."""

    CAPACITY_BLOCK = "capacity-block"
    """Paid in advance for a fixed time span; its instances end with it."""
    ON_DEMAND = "on-demand-capacity-reservation"
    """Paid for until it is cancelled."""


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """Reservation that a pool launches into exclusively."""

    kind: ReservationKind
    id: str
    """`cr-` and 17 hexadecimal digits."""
    usd_per_node_hour: float | None = None
    """What was paid for an hour of one node; None: the on-demand price."""
    start: datetime | None = None
    """When a capacity block starts, in UTC; None: not given, it is always there."""
    end: datetime | None = None
    """When it ends. EC2 takes its nodes 30 minutes before, Karpenter 40."""


class Network(StrEnum):
    """Network of collectives between a pool's nodes."""

    TCP = "tcp"
    EFA = "efa"
    """EC2's Elastic Fabric Adapter."""
    ROCE = "roce"
    """RDMA over Converged Ethernet, on existing nodes."""

    @property
    def rdma(self) -> bool:
        """Whether adapters access memory directly, which requires pods to lock it."""
        return self is not Network.TCP


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """Properties of an existing network; NCCL detects those that are not known."""

    interface: str = ""
    """Interface of pods' traffic, such as eth0; empty: not known."""
    mtu: int | None = None
    """MTU of that interface in bytes; None: not known."""
    rdma_resource: str = ""
    """RoCE only: extended resource of the node's adapters, such as rdma/hca."""
    adapters: tuple[str, ...] = ()
    """RoCE only: devices such as mlx5_0; empty: all of a node."""
    gid_index: int | None = None
    """RoCE only: entry of the adapters' GID tables; None: NCCL chooses."""


UNKNOWN_FABRIC: Final = Fabric()


@dataclass(frozen=True, kw_only=True)
class Taint:
    """A node's taint, always with the effect NoSchedule."""

    key: str
    value: str

    def manifest(self) -> dict[str, str]:
        return {"key": self.key, "value": self.value, "effect": "NoSchedule"}

    def toleration(self) -> dict[str, str]:
        return {"operator": "Equal", **self.manifest()}


@dataclass(frozen=True, kw_only=True)
class NodePool:
    """A node pool: interchangeable nodes with one purchase model in one zone."""

    name: str
    workload: Workload
    capacity: Capacity
    instance_types: tuple[str, ...]
    """Names in the catalog, preferred one first."""
    min: int
    max: int
    zone: str
    nodes: Nodes
    network: Network
    taint_key: str
    """Key of the taint on GPU nodes, `KEY=VALUE:NoSchedule`."""
    taint_value: str = naming.GPU_TRAINING
    """Its value."""
    extra_labels: Mapping[str, str] = field(default_factory=dict)
    region: str = catalog.DEFAULT_REGION
    """Region of the zone and of prices."""
    root_gib: int = ROOT_GIB
    """Size of root volumes, which hold images and scratch data. EC2 nodes only."""
    placement_group: bool = False
    """Use a cluster placement group. EC2 nodes only."""
    reservation: Reservation | None = None
    """Capacity reservation; None: none. EC2 nodes only."""
    fallback: Fallback = Fallback.NONE
    """Whether on-demand nodes are bought where there is no spot capacity. Spot pools of Karpenter only."""
    max_unavailable: int = 1
    """Nodes that an update may replace concurrently. Managed node groups only."""
    sharing: GpuSharing | None = None
    """GPU sharing; None: whole GPUs."""
    fabric: Fabric = UNKNOWN_FABRIC
    """Fabric of existing nodes; other nodes' follows from their source."""
    topology: bool = True
    """Whether Kueue chooses the nodes of the pool's pods, by their place in the network."""

    @property
    def types(self) -> tuple[InstanceType, ...]:
        """Catalog entries of its types. Raises KeyError for an unknown type."""
        return tuple(catalog.load().types[name] for name in self.instance_types)

    @property
    def interruptions(self) -> dict[str, Band | None]:
        """Bands of spot interruptions of its types in its region; None: not listed. Raises KeyError as `types`."""
        return {t.name: t.interruptions.get(self.region) for t in self.types}

    @property
    def purchase_model(self) -> PurchaseModel:
        if self.capacity is Capacity.SPOT:
            return PurchaseModel.SPOT
        return PurchaseModel.RESERVED if self.reservation else PurchaseModel.HOURLY

    @property
    def cards_per_node(self) -> int:
        """Physical GPUs of every node, at least."""
        return min(t.gpus for t in self.types)

    @property
    def gpus_per_node(self) -> int:
        """Devices `nvidia.com/gpu` of every node, at least: its GPUs, or their shares."""
        return self.cards_per_node * self.shares_per_gpu

    @property
    def shares_per_gpu(self) -> int:
        return self.sharing.shares if self.sharing else 1

    @property
    def gpu_models(self) -> tuple[str, ...]:
        """Values of the `gpu.model` label that nodes of the pool may carry."""
        return tuple(sorted({t.gpu_model for t in self.types if t.gpu_model}))

    @property
    def efa_per_node(self) -> int:
        """EFA interfaces that a pod may have on any node of the pool."""
        return min(t.efa_cards for t in self.types) if self.network is Network.EFA else 0

    @property
    def instance_store(self) -> bool:
        """Whether nodes are prepared to use local NVMe disks: EC2 nodes with a type that has them."""
        on_ec2 = self.nodes in (Nodes.MANAGED, Nodes.KARPENTER)
        return on_ec2 and any(t.nvme_gb for t in self.types)

    @property
    def local_nvme_gb(self) -> int:
        """Local NVMe of every node, at least, in GB; 0: none, or unknown."""
        return min(t.nvme_gb for t in self.types) if self.instance_store else 0

    @property
    def fabric_devices(self) -> dict[str, int]:
        """Network adapters of a pod on a node of the pool, by extended resource."""
        if self.network is Network.EFA:
            return {naming.EFA: self.efa_per_node}
        return {self.fabric.rdma_resource: 1} if self.network is Network.ROCE else {}

    @property
    def taints(self) -> tuple[Taint, ...]:
        """Taints of every node; none in CPU pools."""
        if self.workload is Workload.CPU:
            return ()
        found = [Taint(key=self.taint_key, value=self.taint_value)]
        if self.capacity is Capacity.SPOT:
            found.append(Taint(key=naming.SPOT_TAINT, value="true"))
        return tuple(found)

    @property
    def node_type(self) -> str:
        """Value of the `node-type` label."""
        if self.workload is Workload.CPU:
            return "cpu"
        return "gpu-spot" if self.capacity is Capacity.SPOT else "gpu-ondemand"

    def labels(self, instance_type: InstanceType | None = None) -> dict[str, str]:
        """Return a node's labels; those that depend on its type only if the type is given or unique."""
        one = instance_type or (self.types[0] if len(self.types) == 1 else None)
        labels = {
            naming.NODE_TYPE: self.node_type,
            naming.POOL: self.name,
            naming.CAPACITY: self.capacity.value,
            naming.ZONE: self.zone,
        }
        if self.workload is Workload.GPU_TRAINING:
            labels |= {
                naming.ACCELERATOR: "nvidia",
                naming.GPU_VENDOR: "nvidia",
                naming.WORKLOAD_TYPE: naming.GPU_TRAINING,
            }
        if one:
            labels[naming.INSTANCE_TYPE] = one.name
            if one.gpu_model:
                labels[naming.GPU_MODEL] = one.gpu_model
        return labels | self._sharing_labels() | dict(self.extra_labels)

    def _sharing_labels(self) -> dict[str, str]:
        """Return labels that select the pool's part of the configuration of NVIDIA's pods."""
        if self.sharing is None:
            return {}
        mig = self.sharing.mode is SharingMode.MIG
        return {naming.MIG_CONFIG if mig else naming.DEVICE_PLUGIN_CONFIG: self.name}

    @property
    def node_quota(self) -> dict[str, int]:
        """A node's share of quota: millicores, bytes and devices of the pool's smallest type."""
        return {
            "cpu": min(t.training_milli_cpu for t in self.types),
            "memory": min(t.training_memory for t in self.types),
            naming.GPU: self.gpus_per_node,
            naming.EFA: self.efa_per_node,
            **self.fabric_devices,
        }

    def tolerations(self) -> list[dict[str, Any]]:
        return [dict(taint.toleration()) for taint in self.taints]


def placed_alike(pools: Iterable[NodePool]) -> tuple[NodePool, ...]:
    """Return those of a run's pools among which Kueue can choose.

    Pools with a topology admit only pods that request one, and other pools only pods that do not. A run that fits
    both kinds leaves out the first, whose nodes may not exist.
    """
    found = tuple(pools)
    return tuple(pool for pool in found if not pool.topology) or found
