"""The one model of a node pool. Labels, taints, tolerations, flavors and quotas all come from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Any, Final

from infra.domain import catalog, naming
from infra.domain.catalog import InstanceType
from infra.domain.gpu_sharing import GpuSharing, SharingMode

NODES_MAX: Final = 100_000
"""Of the largest cluster that EKS runs."""

ROOT_GIB: Final = 300
"""Root volume unless the pool says otherwise: training images are tens of GiB, some kept at once."""


class Capacity(StrEnum):
    """How a pool's nodes are bought."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"


class PurchaseModel(Enum):
    """How a pool's nodes are paid for."""

    SPOT = auto()
    RESERVED = auto()
    """Paid for whether used or not."""
    HOURLY = auto()
    """On demand, per hour of use."""

    @property
    def capacity(self) -> Capacity:
        """The capacity type of nodes that are paid for like this."""
        return Capacity.SPOT if self is PurchaseModel.SPOT else Capacity.ON_DEMAND


class Workload(StrEnum):
    """What a pool is for."""

    GPU_TRAINING = "gpu-training"
    CPU = "cpu"


class Nodes(StrEnum):
    """Where a pool's nodes come from."""

    EXISTING = "existing"
    """The cluster has them: the pool states facts."""
    MANAGED = "managed"
    """An EKS managed node group makes them."""
    KARPENTER = "karpenter"
    """Karpenter makes them, when pods wait for them."""
    PROCESS = "process"
    """Simulated, and pods on them run as local processes."""
    KWOK = "kwok"
    """Simulated, and pods on them only look as if they ran."""

    @property
    def simulated(self) -> bool:
        """Whether there is no machine behind them: the stack makes the Node objects itself."""
        return self in (Nodes.PROCESS, Nodes.KWOK)


class Autoscaler(StrEnum):
    """What adds nodes when queued runs wait for them, and removes idle ones."""

    KARPENTER = "karpenter"
    CLUSTER_AUTOSCALER = "cluster-autoscaler"
    NONE = "none"


class ReservationKind(StrEnum):
    """How capacity was reserved."""

    CAPACITY_BLOCK = "capacity-block"
    """Bought ahead for a fixed span of time; its instances end with it."""
    ON_DEMAND = "on-demand-capacity-reservation"
    """Held and paid for until it is cancelled."""


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """Capacity that a pool launches into, and into nothing else."""

    kind: ReservationKind
    id: str
    """`cr-` and 17 hexadecimal digits."""


class Network(StrEnum):
    """What carries collectives between a pool's nodes."""

    TCP = "tcp"
    EFA = "efa"
    """EC2's Elastic Fabric Adapter."""
    ROCE = "roce"
    """RDMA over Converged Ethernet, on nodes that exist."""

    @property
    def rdma(self) -> bool:
        """Whether adapters write into memory past the kernel, which pods must lock for it."""
        return self is not Network.TCP


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """Facts of a network that the stack did not make; what is not known is left to NCCL."""

    interface: str = ""
    """That pods' traffic takes, such as eth0; empty: not known."""
    mtu: int | None = None
    """Of that interface, in bytes; None: not known."""
    rdma_resource: str = ""
    """With RoCE: the extended resource by which a pod gets the node's adapters, such as rdma/hca."""
    adapters: tuple[str, ...] = ()
    """With RoCE: devices such as mlx5_0; empty: all that a node has."""
    gid_index: int | None = None
    """With RoCE: entry of the adapters' GID tables; None: NCCL chooses."""


UNKNOWN_FABRIC: Final = Fabric()


@dataclass(frozen=True, kw_only=True)
class Taint:
    """A node's taint; every one here has the effect NoSchedule."""

    key: str
    value: str

    def manifest(self) -> dict[str, str]:
        """As in a Node's spec."""
        return {"key": self.key, "value": self.value, "effect": "NoSchedule"}

    def toleration(self) -> dict[str, str]:
        """The toleration that matches this taint and no other."""
        return {"operator": "Equal", **self.manifest()}


@dataclass(frozen=True, kw_only=True)
class NodePool:
    """Nodes that are alike: bought alike, in one zone, interchangeable for a run."""

    name: str
    workload: Workload
    capacity: Capacity
    instance_types: tuple[str, ...]
    """Names from the catalog, the preferred one first."""
    min: int
    max: int
    zone: str
    nodes: Nodes
    network: Network
    taint_key: str
    """Key of the taint `KEY=gpu-training:NoSchedule` on GPU nodes."""
    extra_labels: Mapping[str, str] = field(default_factory=dict)
    region: str = catalog.DEFAULT_REGION
    """Where the zone is, and whose prices count."""
    root_gib: int = ROOT_GIB
    """Size of each node's root volume, which holds images and scratch data. Nodes on EC2 only."""
    placement_group: bool = False
    """Put all nodes near each other, in a cluster placement group. Nodes on EC2 only."""
    reservation: Reservation | None = None
    """None: capacity that anybody may buy. Nodes on EC2 only."""
    max_unavailable: int = 1
    """Nodes that an update may replace at once. Managed node groups only."""
    sharing: GpuSharing | None = None
    """None: a device is a whole GPU."""
    fabric: Fabric = UNKNOWN_FABRIC
    """Of nodes that exist; that of others follows from what makes them."""

    @property
    def types(self) -> tuple[InstanceType, ...]:
        """The catalog's rows. Raises KeyError for a type that it lacks."""
        return tuple(catalog.load().types[name] for name in self.instance_types)

    @property
    def purchase_model(self) -> PurchaseModel:
        """How the nodes are paid for."""
        if self.capacity is Capacity.SPOT:
            return PurchaseModel.SPOT
        return PurchaseModel.RESERVED if self.reservation else PurchaseModel.HOURLY

    @property
    def cards_per_node(self) -> int:
        """GPUs that every node of the pool has at least, as machines."""
        return min(t.gpus for t in self.types)

    @property
    def gpus_per_node(self) -> int:
        """Devices `nvidia.com/gpu` that every node offers at least: its GPUs, or the shares of them."""
        return self.cards_per_node * self.shares_per_gpu

    @property
    def shares_per_gpu(self) -> int:
        """Devices that a GPU is offered as."""
        return self.sharing.shares if self.sharing else 1

    @property
    def gpu_models(self) -> tuple[str, ...]:
        """Values of the `gpu.model` label that nodes of the pool may carry."""
        return tuple(sorted({t.gpu_model for t in self.types if t.gpu_model}))

    @property
    def efa_per_node(self) -> int:
        """EFA interfaces a pod may have on every node of the pool."""
        return min(t.efa_cards for t in self.types) if self.network is Network.EFA else 0

    @property
    def fabric_devices(self) -> dict[str, int]:
        """Network adapters that a pod takes on a node of the pool, by extended resource."""
        if self.network is Network.EFA:
            return {naming.EFA: self.efa_per_node}
        return {self.fabric.rdma_resource: 1} if self.network is Network.ROCE else {}

    @property
    def taints(self) -> tuple[Taint, ...]:
        """Taints of every node: none on CPU pools."""
        if self.workload is Workload.CPU:
            return ()
        found = [Taint(key=self.taint_key, value=naming.GPU_TRAINING)]
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
        """Labels of a node; those that vary by type only when the type is given or the only one."""
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
        """By which NVIDIA's own pods find the part of their configuration that is named like the pool."""
        if self.sharing is None:
            return {}
        mig = self.sharing.mode is SharingMode.MIG
        return {naming.MIG_CONFIG if mig else naming.DEVICE_PLUGIN_CONFIG: self.name}

    @property
    def node_quota(self) -> dict[str, int]:
        """What one node adds to a queue: millicores, bytes and devices of the pool's smallest type."""
        return {
            "cpu": min(t.training_milli_cpu for t in self.types),
            "memory": min(t.training_memory for t in self.types),
            naming.GPU: self.gpus_per_node,
            naming.EFA: self.efa_per_node,
            **self.fabric_devices,
        }

    @property
    def usd_per_node_hour(self) -> float | None:
        """Price of the dearest type of the pool in its region; None when no price is known.

        A capacity block is paid for when it is bought, at a price of its own.
        """
        prices = [catalog.price(name, self.region) for name in self.instance_types]
        spot = self.capacity is Capacity.SPOT
        known = [p.spot_usd_hour if spot else p.on_demand_usd_hour for p in prices]
        return max((usd for usd in known if usd is not None), default=None)

    def tolerations(self) -> list[dict[str, Any]]:
        """What a pod needs to be placed on the pool's nodes."""
        return [dict(taint.toleration()) for taint in self.taints]


def topology_aware(pools: Iterable[NodePool]) -> bool:
    """Whether Kueue may choose the nodes of a gang itself.

    It chooses among nodes that exist, and Karpenter's do not yet; Kueue would wait for them for ever. A
    queue mixes pools, and a run is placed in one way or the other, so one such pool decides for all.
    """
    return all(pool.nodes is not Nodes.KARPENTER for pool in pools)
