"""The stack file's shape: frozen, unknown keys refused, every key described once, here."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from infra import naming, quantity
from infra.pools import Capacity, Network, NodePool, Nodes, Workload

OPERATORS: Final = ("kueue", "jobset", "kubeflowTrainer", "trainingOperator", "mpiOperator")

SOURCE_SUFFIX: Final = "@source"
"""An image reference that ends so stands for the trainer's source in this checkout."""

_DIGEST: Final = re.compile(r".+@sha256:[0-9a-f]{64}")
_REPOSITORY: Final = re.compile(r"[a-z0-9][a-z0-9.:_/-]*[a-z0-9]")


def _dns_label(value: str) -> str:
    if not naming.is_dns_label(value):
        raise ValueError(
            "lower-case letters, digits and hyphens, starting and ending with a letter or digit, "
            "at most 63; rename it"
        )
    return value


def _quantity(value: str) -> str:
    try:
        positive = quantity.parse(value) > 0
    except ValueError:
        positive = False
    if not positive:
        raise ValueError("a positive quantity such as 500m, 32 or 4Ti; correct it")
    return value


def _cidr(value: str) -> str:
    try:
        ipaddress.ip_network(value)
    except ValueError:
        raise ValueError("a CIDR block such as 10.0.0.0/16; correct it") from None
    return value


def _image(value: str) -> str:
    repository = value.partition("@")[0]
    pinned = value.endswith(SOURCE_SUFFIX) or _DIGEST.fullmatch(value)
    if not pinned or not _REPOSITORY.fullmatch(repository):
        raise ValueError(
            "REPOSITORY@sha256:DIGEST (64 hexadecimal digits); "
            "a tag can be moved, so pin the digest that the registry shows"
        )
    return value


Str = Annotated[str, Field(strict=True, min_length=1)]
Int = Annotated[int, Field(strict=True)]
Bool = Annotated[bool, Field(strict=True)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
DnsLabel = Annotated[Str, AfterValidator(_dns_label)]
Quantity = Annotated[Str, AfterValidator(_quantity)]
Cidr = Annotated[Str, AfterValidator(_cidr)]
Image = Annotated[Str, AfterValidator(_image)]


class Section(BaseModel):
    """Base of every part of a file that people write."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)


class ClusterConfig(Section):
    """Which cluster the stack lives on."""

    provider: Literal["existing"] = Field(description="existing: any cluster, by kubeconfig")
    name: DnsLabel = Field(description="a DNS label")
    kubeconfig_path: Str | None = None
    """Default: what KUBECONFIG names."""
    context: Str | None = None
    """Default: the kubeconfig's current context."""


class PoolConfig(Section):
    """One node pool; see infra.pools."""

    name: DnsLabel = Field(description="a DNS label")
    workload: Workload = Workload.GPU_TRAINING
    capacity: Capacity = Field(description="spot or on-demand")
    instance_types: tuple[Str, ...] = Field(
        min_length=1, description="a list of instance types of infra/catalog.yaml"
    )
    min: Int = Field(default=0, ge=0)
    max: Int = Field(ge=1, description="a number of nodes, at least 1")
    zone: DnsLabel = Field(description="an availability zone")
    nodes: Nodes = Nodes.EXISTING
    network: Network = Network.TCP
    labels: dict[Str, Str] = {}

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
        )


class StorageConfig(Section):
    """Shared volumes of every team."""

    storage_class: DnsLabel | None = None
    """A class that serves ReadWriteMany; none: the simulated one, made by the stack."""
    checkpoints: Quantity = Field(description="a size such as 5Ti")
    datasets: Quantity = Field(description="a size such as 2Ti")
    protect: Bool = False
    """Refuse to delete the claims, and keep their data when they are unprotected and removed."""


class OperatorConfig(Section):
    """A controller that the platform needs."""

    provided: Bool = Field(description="true when the cluster has it, false to install it")


class OperatorsConfig(Section):
    """Controllers by name; one that is not named is not there."""

    kueue: OperatorConfig = Field(description="{provided: true} or {provided: false}")
    jobset: OperatorConfig | None = None
    kubeflow_trainer: OperatorConfig | None = None
    training_operator: OperatorConfig | None = None
    mpi_operator: OperatorConfig | None = None


class QuotaConfig(Section):
    """The most that a team's namespace may hold at once, whatever its queue admits."""

    cpu: Quantity = Field(description="a number of cores")
    memory: Quantity = Field(description="a size such as 4Ti")
    gpus: Int = Field(ge=0, description="a number of GPUs")


class TeamConfig(Section):
    """One team."""

    name: DnsLabel = Field(description="a DNS label")
    tier: Literal["research", "production"] = Field(description="research or production")
    guaranteed: dict[DnsLabel, Annotated[Int, Field(ge=0)]] = {}
    """Nodes per pool that are the team's whenever it wants them; the rest of a pool is shared."""
    quota: QuotaConfig = Field(description="cpu, memory and gpus")
    fair_weight: Annotated[Int, Field(ge=1, le=1000)] = 1
    """Share of what nobody is guaranteed, relative to other teams."""


class StackConfig(Section):
    """A whole stack file."""

    cluster: ClusterConfig = Field(description="provider and name")
    taint_key: Str = Field(description="the key of the GPU nodes' taint, such as dedicated")
    cohort: DnsLabel = Field(description="a DNS label")
    node_pools: tuple[PoolConfig, ...] = Field(min_length=1, description="a list of node pools")
    storage: StorageConfig = Field(description="checkpoints and datasets")
    operators: OperatorsConfig = Field(description="kueue at least")
    teams: tuple[TeamConfig, ...] = Field(min_length=1, description="a list of teams")
    images: dict[DnsLabel, Image] = {}
    """References by digest that run files may name."""
    runs: tuple[Str, ...] = ()
    """Stems of files in training/runs, or paths that end in .yaml."""
    egress_cidrs: tuple[Cidr, ...] = ()
    """What training pods may reach by HTTPS (object storage); the metadata service never."""

    @property
    def pools(self) -> tuple[NodePool, ...]:
        """The pools that the platform works with."""
        return tuple(pool.pool(self.taint_key) for pool in self.node_pools)
