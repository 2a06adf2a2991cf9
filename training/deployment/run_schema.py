"""What a run file may say, key by key. Unknown keys are refused."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from infra.config.types import Bool, Cores, DnsLabel, Int, Number, Size, Str, StrictModel
from infra.domain.pools import NODES_MAX
from training import spec


class DatasetSection(StrictModel):
    """What the run reads."""

    name: DnsLabel = Field(description="a DNS label")
    version: Str = spec.LATEST
    source: Str | None = None
    """What `python -m training.prepare` makes it from; none: it is there already."""


class ResourcesSection(StrictModel):
    """What one node's pod asks for beside its GPUs."""

    cpu: Cores = Field(description="a number of cores")
    memory: Size = Field(description="a size such as 64Gi")
    shm: Size = Field(description="a size such as 32Gi, part of memory")


class CheckpointSection(StrictModel):
    """When checkpoints are written; overrides the trainer's configuration."""

    every_steps: Int | None = Field(default=None, ge=1)
    every_seconds: Number | None = Field(default=None, gt=0)


class ParallelismSection(StrictModel):
    """Ranks per dimension; overrides `parallel` of the trainer's configuration."""

    replicate: Int | None = Field(default=None, ge=1)
    shard: Int | None = Field(default=None, ge=1)
    tensor: Int | None = Field(default=None, ge=1)
    pipeline: Int | None = Field(default=None, ge=1)


class RequireSection(StrictModel):
    """What must hold where the run has been placed, before its trainer starts."""

    collective_gbps: Number | None = Field(default=None, gt=0, alias="collectiveGBps")
    """Bus bandwidth in GB/s of an all-reduce over all ranks."""


def _run_name(value: str) -> str:
    if not value[:1].isalpha():
        raise ValueError(
            "a name that begins with a letter, for Services are named after it; rename it"
        )
    return value


RunName = Annotated[DnsLabel, AfterValidator(_run_name)]


class RunFile(StrictModel):
    """One version of a run."""

    name: RunName = Field(description="a DNS label that begins with a letter")
    version: Int = Field(ge=1, description="a number, 1 for the first")
    team: Str = Field(description="a team of the stack")
    launcher: Str = "jobset"
    nodes: Int = Field(ge=1, le=NODES_MAX, description="a number of nodes")
    gpus_per_node: Int = Field(ge=1, le=1000, description="a number of GPUs")
    world_size: Int | None = None
    """For the reader; checked when it is there."""
    gpu_model: Str | None = None
    allow_spot: Bool | None = None
    """Default: research runs may use spot capacity, production runs may not."""
    image: Str = Field(description="a name of the stack's images, or a reference by digest")
    config: Str = Field(description="the stem of a file in training/configs")
    overrides: dict[str, Any] = Field(default_factory=dict)
    """Settings that replace the config's, nested like them."""
    dataset: DatasetSection = Field(description="name, version and source")
    resources: ResourcesSection = Field(description="cpu, memory and shm")
    parallelism: ParallelismSection = ParallelismSection()
    checkpoint: CheckpointSection = CheckpointSection()
    require: RequireSection = RequireSection()
    save_seconds: Number = Field(default=30.0, gt=0)
    """The slowest checkpoint save, measured or declared; every shutdown timeout follows from it."""
    secrets: tuple[Str, ...] = ()
    """Names of the team's secrets, whose variables the run gets."""
    priority: Str | None = None
    max_restarts: Int = Field(default=3, ge=0, le=1000)
    max_hours: Number | None = Field(default=None, gt=0)
    cost_cap_usd: Number | None = Field(default=None, gt=0)
