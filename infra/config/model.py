"""The stack file's shape: frozen, unknown keys refused, every key described once, here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from infra.config.aws_model import (
    AwsConfig,
    BucketsConfig,
    EfsConfig,
    EksClusterConfig,
    ExistingNetworkConfig,
    FsxConfig,
    InterruptionConfig,
    MadeNetworkConfig,
    NetworkConfig,
    ReservationConfig,
)
from infra.config.drills_model import RestoreDrillConfig
from infra.config.gpus_model import FabricConfig, GpusConfig
from infra.config.logs_model import LogsConfig
from infra.config.mirror_model import Mirror
from infra.config.observability_model import ObservabilityConfig
from infra.config.operators_model import OperatorsConfig
from infra.config.secrets_model import TeamSecretConfig
from infra.config.signatures_model import SignaturesConfig
from infra.config.types import (
    Bool,
    Cidr,
    Cores,
    DnsLabel,
    Image,
    Int,
    KubernetesVersion,
    LabelKey,
    LabelValue,
    Number,
    Repository,
    Size,
    Str,
    StrictModel,
    TaintKey,
    TeamName,
)
from infra.config.validation_model import ValidationConfig
from infra.domain import catalog
from infra.domain.catalog import ec2
from infra.domain.pools import (
    NODES_MAX,
    ROOT_GIB,
    UNKNOWN_FABRIC,
    Autoscaler,
    Capacity,
    Network,
    NodePool,
    Nodes,
    Workload,
)
from infra.domain.scheduler import DEFAULT_SCHEDULER, Scheduler
from infra.domain.tier import TierName


class StorageKind(StrEnum):
    """What keeps the bytes of shared volumes."""

    SIMULATED = "simulated"
    STORAGE_CLASS = "storageClass"
    FSX = "fsx"
    EFS = "efs"


class ExistingClusterConfig(StrictModel):
    """A cluster that is there already: any, by kubeconfig."""

    TAG: ClassVar[str] = "existing"

    provider: Literal["existing"]
    """`existing`: a cluster that the stack does not create."""
    name: DnsLabel = Field(description="a DNS label")
    """Name of the cluster in the Platform record and in logs; `context` selects the cluster itself."""
    kubeconfig_path: Str | None = None
    """Path of a kubeconfig, such as ~/.kube/config. Default: what KUBECONFIG names."""
    context: Str | None = None
    """Context in the kubeconfig, such as admin@training. Default: the kubeconfig's current context."""
    version: KubernetesVersion | None = None
    """Kubernetes version, such as 1.37. Required with `scheduler: native`, whose API depends on it."""


class PoolConfig(StrictModel):
    """One node pool; see infra.domain.pools."""

    name: DnsLabel = Field(description="a DNS label")
    """Name of the pool; teams refer to it in `guaranteed`."""
    workload: Workload = Workload.GPU_TRAINING
    """`gpu-training` pools run training and are queued for; `cpu` pools run other workloads."""
    capacity: Capacity = Field(description="spot or on-demand")
    """How the nodes are bought."""
    instance_types: tuple[Str, ...] = Field(
        min_length=1, description="a list of instance types of infra/domain/catalog.yaml"
    )
    """Instance types of its nodes; several make spot capacity easier to obtain."""
    min: Int = Field(default=0, ge=0)
    """Nodes that always exist."""
    max: Int = Field(ge=1, le=NODES_MAX, description="a number of nodes, at least 1")
    """Nodes at most; queues derive their quota from it."""
    zone: DnsLabel = Field(description="an availability zone")
    """Zone of its nodes, such as us-east-1a; a pool has one, because gangs do not span zones."""
    nodes: Nodes = Nodes.EXISTING
    """What creates its nodes: `existing` (already there), `managed` (an EKS node group), `karpenter`, or in
    the sandbox `process` and `kwok`."""
    network: Network = Network.TCP
    """Transport of collectives between its nodes."""
    fabric: FabricConfig | None = None
    """Network facts of nodes that exist already. Default: unknown."""
    labels: dict[LabelKey, LabelValue] = Field(default={})
    """Further labels of its nodes."""
    root_gib: Int = Field(default=ROOT_GIB, ge=50, le=16384, alias="rootGiB")
    """Size of a node's root volume in GiB."""
    placement_group: Bool = False
    """Place the nodes of the pool in one cluster placement group."""
    reservation: ReservationConfig | None = None
    """Capacity reservation that the pool launches into. Default: none."""
    max_unavailable: Int = Field(default=1, ge=1, le=100)
    """Nodes of a managed node group that an update or a repair may replace at once."""

    def pool(self, taint_key: str) -> NodePool:
        """The pool that the platform works with."""
        return NodePool(
            name=self.name,
            workload=self.workload,
            capacity=self.capacity,
            instance_types=self.instance_types,
            min=self.min,
            max=self.max,
            zone=self.zone,
            nodes=self.nodes,
            network=self.network,
            taint_key=taint_key,
            extra_labels=self.labels,
            region=ec2.region_of_zone(self.zone) or catalog.DEFAULT_REGION,
            root_gib=self.root_gib,
            placement_group=self.placement_group,
            reservation=self.reservation.reservation if self.reservation else None,
            max_unavailable=self.max_unavailable,
            fabric=self.fabric.fabric if self.fabric else UNKNOWN_FABRIC,
        )


class StorageConfig(StrictModel):
    """Shared volumes of every team: at most one of storageClass, fsx and efs; else simulated."""

    storage_class: DnsLabel | None = None
    """A StorageClass that supports ReadWriteMany, such as shared. Default: none."""
    fsx: FsxConfig | None = None
    """FSx for Lustre as shared storage."""
    efs: EfsConfig | None = None
    """EFS as shared storage: slower, in all zones, billed by use."""
    checkpoints: Size = Field(description="a size such as 5Ti")
    """Size of each team's checkpoint volume."""
    datasets: Size = Field(description="a size such as 2Ti")
    """Size of each team's dataset volume."""
    protect: Bool | None = None
    """Refuse to delete claims, buckets, keys and file systems, and keep them when they are dropped from
    the file. Default: true on a cluster that the stack makes, else false."""
    buckets: BucketsConfig | None = None
    """S3 buckets of the stack; required on AWS."""

    @property
    def kind(self) -> StorageKind:
        """What keeps the bytes."""
        if self.fsx:
            return StorageKind.FSX
        if self.efs:
            return StorageKind.EFS
        return StorageKind.STORAGE_CLASS if self.storage_class else StorageKind.SIMULATED


class QuotaConfig(StrictModel):
    """The most that a team's namespace may hold at once, whatever its queue admits."""

    cpu: Cores = Field(description="a number of cores")
    """CPU cores of all pods in the namespace."""
    memory: Size = Field(description="a size such as 4Ti")
    """Memory of all pods in the namespace."""
    gpus: Int = Field(ge=0, description="a number of GPUs")
    """GPUs of all pods in the namespace."""


class TeamConfig(StrictModel):
    """One team."""

    name: TeamName = Field(description="a DNS label")
    """Name of the team; its namespace is team-NAME."""
    tier: TierName = Field(description="research or production")
    """`production` prefers on-demand capacity and preempts borrowers; `research` prefers spot."""
    guaranteed: dict[DnsLabel, Annotated[Int, Field(ge=0)]] = Field(default={})
    """Nodes per pool that are the team's whenever it wants them; the rest of a pool is shared."""
    quota: QuotaConfig = Field(description="cpu, memory and gpus")
    """Limit of everything in the namespace of the team, regardless of its queue."""
    borrowing: dict[DnsLabel, Annotated[Int, Field(ge=0)]] = Field(default={})
    """Most nodes per pool beyond its own. A pool that is not named: all that others leave."""
    lending: dict[DnsLabel, Annotated[Int, Field(ge=0)]] = Field(default={})
    """Most of its own nodes per pool that others may use meanwhile. A pool that is not named: all."""
    on_demand_usd_per_hour: Annotated[Number, Field(ge=0)] | None = None
    """Most that a research team's runs on on-demand pools may cost, its own nodes there included; 0: never
    on demand. Default: no bound but the pools."""
    fair_weight: Annotated[Int, Field(ge=1, le=1000)] | None = None
    """Share of what nobody is guaranteed, relative to other teams. Default: 1, for production 10."""
    secrets: tuple[TeamSecretConfig, ...] = ()
    """Secrets that its runs may name."""
    rdma: Bool = False
    """Its pods may have the capability IPC_LOCK, which RDMA needs; all else stays restricted."""
    restore_drill: RestoreDrillConfig = RestoreDrillConfig()
    """What proves that its checkpoints can be restored."""


@dataclass(frozen=True, kw_only=True)
class OnAws:
    """The parts that a stack on AWS has for certain."""

    cluster: EksClusterConfig
    aws: AwsConfig
    network: MadeNetworkConfig | ExistingNetworkConfig
    buckets: BucketsConfig


class StackConfig(StrictModel):
    """A whole stack file."""

    cluster: Annotated[
        ExistingClusterConfig | EksClusterConfig, Field(discriminator="provider")
    ] = Field(description="provider and name")
    """The cluster: one that exists, or an EKS cluster that the stack creates."""
    aws: AwsConfig | None = None
    """AWS account and region; required with `provider: eks`."""
    network: NetworkConfig | None = None
    """VPC of the cluster; required with `provider: eks`."""
    taint_key: TaintKey = Field(description="the key of the GPU nodes' taint, such as dedicated")
    """Key of the GPU nodes' taint."""
    cohort: DnsLabel = Field(description="a DNS label")
    """Kueue cohort whose queues lend to each other."""
    node_pools: tuple[PoolConfig, ...] = Field(min_length=1, description="a list of node pools")
    """Node pools of the cluster."""
    storage: StorageConfig = Field(description="checkpoints and datasets")
    """Shared volumes and buckets for checkpoints and datasets."""
    scheduler: Scheduler = DEFAULT_SCHEDULER
    """What queues runs and admits their gangs: kueue, volcano, yunikorn or native."""
    operators: OperatorsConfig = Field(description="that of the scheduler at least")
    """Add-ons that the stack installs or expects; at least that of the scheduler."""
    teams: tuple[TeamConfig, ...] = Field(min_length=1, description="a list of teams")
    """Teams, each with a namespace, a quota and a queue."""
    images: dict[DnsLabel, Image] = Field(default={})
    """References by digest that run files may name."""
    signatures: SignaturesConfig | None = None
    """Who signs images. Default: teams' images need no signature."""
    registries: tuple[Repository, ...] | None = None
    """Registries or repositories that pods of teams may have images from. Default: those of `images`."""
    runs: tuple[Str, ...] = ()
    """Stems of files in training/runs, or paths that end in .yaml."""
    egress_cidrs: tuple[Cidr, ...] = ()
    """What training pods may reach by HTTPS (object storage); the metadata service never."""
    logs: LogsConfig | None = None
    """Where logs of runs go. Default: to CloudWatch, where fluentBit is installed on AWS."""
    autoscaler: Autoscaler = Autoscaler.NONE
    """What adds nodes for admitted runs and removes idle ones."""
    gpus: GpusConfig = GpusConfig()
    """GPU driver, and sharing of GPUs between pods."""
    interruption: InterruptionConfig = InterruptionConfig()
    """How pods are notified that their spot node is reclaimed."""
    mirror: Mirror | None = None
    """Registry, or a folder in one, that has every chart and image that the stack installs; see
    `python -m infra.cli.mirror`. Default: each comes from its makers' own."""
    validation: ValidationConfig | None = None
    """Checks of its nodes. Default: none."""
    observability: ObservabilityConfig | None = None
    """Metrics, dashboards and alerts. Default: the defaults of its keys, where kubePrometheusStack is."""

    @property
    def on_aws(self) -> OnAws | None:
        """The AWS half; None where the cluster exists already."""
        buckets = self.storage.buckets
        if isinstance(self.cluster, EksClusterConfig) and self.aws and self.network and buckets:
            return OnAws(cluster=self.cluster, aws=self.aws, network=self.network, buckets=buckets)
        return None

    @property
    def protected(self) -> bool:
        """Whether stateful things refuse to be deleted."""
        if self.storage.protect is None:
            return isinstance(self.cluster, EksClusterConfig)
        return self.storage.protect

    def pools_of(self, *nodes: Nodes) -> tuple[NodePool, ...]:
        """Pools whose nodes come from any of these."""
        return tuple(pool for pool in self.pools if pool.nodes in nodes)

    @property
    def pools(self) -> tuple[NodePool, ...]:
        """The pools that the platform works with."""
        return tuple(self._pool(pool) for pool in self.node_pools)

    def _pool(self, config: PoolConfig) -> NodePool:
        pool = config.pool(self.taint_key)
        shared = self.gpus.sharing.get(config.name)
        return replace(pool, sharing=shared.sharing(pool.gpu_models)) if shared else pool
