"""The stack file: one model, composed of its sections."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from infra.config.operators import ChartConfig, Mirror, OperatorsConfig
from infra.domain import naming
from infra.domain.pools import Autoscaler, NodePool, Nodes, Taint, Workload
from infra.domain.scheduler import DEFAULT_SCHEDULER, Scheduler
from infra.sections.aws import AwsConfig, InterruptionConfig
from infra.sections.cluster import EksClusterConfig, ExistingClusterConfig
from infra.sections.gpus import GpusConfig
from infra.sections.logs import LogsConfig
from infra.sections.network import (
    ExistingNetworkConfig,
    MadeNetworkConfig,
    NetworkConfig,
)
from infra.sections.node_pools import PoolConfig
from infra.sections.observability import ObservabilityConfig
from infra.sections.programs import (
    CostsConfig,
    ElasticRunsConfig,
    RunPageConfig,
    SteeringConfig,
    ValidationConfig,
)
from infra.sections.scheduler import GangTimeoutsConfig
from infra.sections.signatures import SignaturesConfig
from infra.sections.storage import BucketsConfig, StorageConfig
from infra.sections.teams import TeamConfig
from infra.sections.types import (
    Cidr,
    DnsLabel,
    Image,
    LabelValue,
    Repository,
    Str,
    StrictModel,
    TaintKey,
)


@dataclass(frozen=True, kw_only=True)
class OnAws:
    """Sections that a stack on AWS always has."""

    cluster: EksClusterConfig
    aws: AwsConfig
    network: MadeNetworkConfig | ExistingNetworkConfig
    buckets: BucketsConfig


class StackConfig(StrictModel):
    """A whole stack file."""

    cluster: Annotated[
        ExistingClusterConfig | EksClusterConfig, Field(discriminator="provider")
    ] = Field(description="provider and name")
    """An existing cluster, or one that the stack creates on EKS."""
    aws: AwsConfig | None = None
    """AWS account and region; required with `provider: eks`."""
    network: NetworkConfig | None = None
    """VPC of the cluster; required with `provider: eks`."""
    taint_key: TaintKey = Field(description="the key of the GPU nodes' taint, such as dedicated")
    """Taint of GPU nodes, `KEY=VALUE:NoSchedule`."""
    taint_value: LabelValue = naming.GPU_TRAINING
    """Value of that taint."""
    cohort: DnsLabel = Field(description="a DNS label")
    """Kueue cohort whose queues lend to each other."""
    node_pools: tuple[PoolConfig, ...] = Field(min_length=1, description="a list of node pools")
    """Node pools of the cluster."""
    storage: StorageConfig = Field(description="checkpoints and datasets")
    """Volumes and buckets; at most one of storageClass, fsx and efs, else simulated."""
    scheduler: Scheduler = DEFAULT_SCHEDULER
    """What queues runs and admits gangs."""
    gang_timeouts: GangTimeoutsConfig = GangTimeoutsConfig()
    """When Kueue queues a gang again that does not start."""
    operators: OperatorsConfig = Field(description="that of the scheduler at least")
    """Add-ons that the stack installs or expects."""
    teams: tuple[TeamConfig, ...] = Field(min_length=1, description="a list of teams")
    """Teams, each with a namespace, a quota and a queue."""
    images: dict[DnsLabel, Image] = Field(default={})
    """References by digest that run files may name."""
    signatures: SignaturesConfig | None = None
    """Signer of the teams' images, one of two. Default: images need no signature."""
    registries: tuple[Repository, ...] | None = None
    """Registries or repositories allowed for images of teams' pods. Default: those of `images`."""
    runs: tuple[Str, ...] = ()
    """Stems of files in training/runs, or paths that end in .yaml."""
    egress_cidrs: tuple[Cidr, ...] = ()
    """CIDR blocks that training pods may reach by HTTPS; never the metadata service."""
    logs: LogsConfig | None = None
    """Destination of the runs' logs, one of two. Default: CloudWatch, where fluentBit is installed on AWS."""
    autoscaler: Autoscaler = Autoscaler.NONE
    """What adds nodes for admitted runs and removes idle ones."""
    gpus: GpusConfig = GpusConfig()
    """GPU driver, and sharing of GPUs between pods."""
    interruption: InterruptionConfig = InterruptionConfig()
    """Notice of a spot reclaim in pods."""
    mirror: Mirror | None = None
    """Registry with copies of all charts and images (`python -m infra.cli.mirror`). Default: upstream's."""
    charts: dict[Str, ChartConfig] = Field(default={})
    """Digest and values by add-on."""
    validation: ValidationConfig | None = None
    """Checks of the nodes. Default: none."""
    observability: ObservabilityConfig | None = None
    """Metrics, dashboards and alerts. Default: those of its keys, with kubePrometheusStack."""
    costs: CostsConfig | None = None
    """Record of costs and enforcement of budgets in the cluster. Default: none."""
    steering: SteeringConfig | None = None
    """Moves runs between spot, reserved and on-demand pools. Default: queues try pools in their order."""
    elastic_runs: ElasticRunsConfig | None = None
    """Elastic runs. Default: run files have no `groups`."""
    run_page: RunPageConfig | None = None
    """The run page in the cluster. Default: only `trainyard ui`."""

    @property
    def eks(self) -> EksClusterConfig | None:
        """Return the cluster that the stack creates on EKS; None for an existing one."""
        return self.cluster if isinstance(self.cluster, EksClusterConfig) else None

    @property
    def on_aws(self) -> OnAws | None:
        """Return the AWS sections; None for an existing cluster."""
        buckets = self.storage.buckets
        if self.eks and self.aws and self.network and buckets:
            return OnAws(cluster=self.eks, aws=self.aws, network=self.network, buckets=buckets)
        return None

    @property
    def protected(self) -> bool:
        """Whether stateful resources are protected from deletion."""
        if self.storage.protect is None:
            return self.eks is not None
        return self.storage.protect

    def pools_of(self, *nodes: Nodes) -> tuple[NodePool, ...]:
        """Return the pools whose nodes have one of these origins."""
        return tuple(pool for pool in self.pools if pool.nodes in nodes)

    @property
    def pools(self) -> tuple[NodePool, ...]:
        grown = any(
            pool.nodes is Nodes.KARPENTER and pool.workload is Workload.GPU_TRAINING
            for pool in self.node_pools
        )
        return tuple(self._pool(pool, topology=not grown) for pool in self.node_pools)

    @property
    def gpu_taint(self) -> Taint:
        return Taint(key=self.taint_key, value=self.taint_value)

    def _pool(self, config: PoolConfig, *, topology: bool) -> NodePool:
        pool = config.pool(self.taint_key, self.taint_value, topology=topology)
        shared = self.gpus.sharing.get(config.name)
        return replace(pool, sharing=shared.sharing(pool.gpu_models)) if shared else pool
