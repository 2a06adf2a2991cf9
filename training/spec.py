"""The contract between the platform and the program of a run: exit codes, paths, RunSpec.

Both sides import this module, so it uses the standard library only: the Pulumi side must not load torch, and the
trainer's image does not contain pulumi. What the platform shares with users' programs is in trainyard/contract.py.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from training.program import Program
from trainyard.contract import (
    CHECKPOINT_MOUNT,
    CHECKPOINTS_DIR,
    DATA_MOUNT,
    LATEST,
    LAUNCHER_EXIT_S,
    RUN_ID_HASH_CHARS,
    STEP_ALLOWANCE_S,
    WORKER_EXIT_S,
)
from trainyard.hashing import content_hash

SPOT: Final = "spot"
"""Capacity type; infra.domain.pools.Capacity has all of them."""

NODES_MAX: Final = 100_000
"""Nodes of a run; more cannot be in a Kubernetes cluster."""

JOB_SPEC_REVISION: Final = 5
"""Incremented when launchers render a run differently; recorded with the run, not part of its id."""

GROUPS_MAX: Final = 64
"""Replica groups of a run: each is one Workload of Kueue, and a member of every sum."""

RUN_ID_MAX: Final = 44
"""Characters of a gang's name: a JobSet pod is named GANG-worker-0-INDEX-xxxxx, which must be a DNS label (63)."""

_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def group_id(run_id: str, number: int) -> str:
    """Return the name of a group's object, as objects of one run with groups are told apart."""
    return f"{run_id}-g{number}"


def gang_ids(run_id: str, groups: Groups | None) -> list[str]:
    """Return the names of the objects that are queued for a run."""
    return [group_id(run_id, n) for n in range(groups.count)] if groups else [run_id]


def ids_of_runs(name: str) -> str:
    """A regular expression for the ids of all versions of a run."""
    return rf"{re.escape(name)}-v[0-9]+-[0-9a-f]{{{RUN_ID_HASH_CHARS}}}"


@dataclass(frozen=True, kw_only=True)
class GraceBudget:
    """Time in seconds that a run can take to stop; every timeout of a shutdown derives from it.

    Each bound contains the one before it, so that no layer kills the one it waits for.
    """

    checkpoint_deadline_s: int
    """From SIGTERM to a committed checkpoint; after it the trainer keeps the previous one."""
    shutdown_timeout_s: int
    """torchrun's timeout for its workers after SIGTERM (its default of 30 s kills saves)."""
    termination_grace_s: int
    """The pod's terminationGracePeriodSeconds."""

    def __post_init__(self) -> None:
        bounds = (0, self.checkpoint_deadline_s, self.shutdown_timeout_s, self.termination_grace_s)
        if any(a >= b for a, b in itertools.pairwise(bounds)):
            raise ValueError(f"grace budget must grow outwards, got {bounds[1:]}")

    @classmethod
    def for_save(cls, save_seconds: float) -> GraceBudget:
        """The budget of a run whose slowest checkpoint save takes `save_seconds` (> 0)."""
        if not save_seconds > 0 or not math.isfinite(save_seconds):
            raise ValueError(f"save_seconds: got {save_seconds}; allowed > 0")
        deadline = math.ceil(save_seconds) + STEP_ALLOWANCE_S
        shutdown = deadline + WORKER_EXIT_S
        return cls(
            checkpoint_deadline_s=deadline,
            shutdown_timeout_s=shutdown,
            termination_grace_s=shutdown + LAUNCHER_EXIT_S,
        )

    def fits(self, notice_s: int) -> bool:
        """Whether a pod that gets `notice_s` seconds of warning can finish its shutdown."""
        return self.termination_grace_s <= notice_s


def max_save_seconds(notice_s: int) -> int:
    """The slowest save, in seconds, that still fits a notice of `notice_s` seconds."""
    return notice_s - STEP_ALLOWANCE_S - WORKER_EXIT_S - LAUNCHER_EXIT_S


def key(
    description: str,
    *,
    kind: str = "",
    alias: str = "",
    **bounds: float,
) -> dict[str, Any]:
    """Return field metadata that makes the field a key of run files.

    `kind`: a type of training/run_schema.py that is narrower than the field's; `alias`: the key,
    if it is not the field's name in camelCase; `bounds`: ge, gt and le, as in pydantic.
    """
    return {"key": {"description": description, "kind": kind, "alias": alias, "bounds": bounds}}


def _hashed(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, and of those inside it, that its hash covers: those without their default.

    So a key that is added later leaves the ids of runs that do not set it.
    """
    found: dict[str, Any] = {}
    for one in dataclasses.fields(record):
        value = getattr(record, one.name)
        if value == one.default or one.metadata.get("of_gang"):
            continue
        if isinstance(value, Program):
            value = value.identity()
        found[one.name] = _hashed(value) if dataclasses.is_dataclass(value) else value
    return found


@dataclass(frozen=True, kw_only=True)
class PreparationResources:
    """Requests and limits of the Job that prepares a dataset, as Kubernetes quantities."""

    cpu: str = field(default="1", metadata=key("a number of cores", kind="Cores"))
    memory: str = field(default="2Gi", metadata=key("a size such as 8Gi", kind="Size"))


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Which tokens a run reads: `/data/NAME/VERSION` in the team's dataset volume."""

    name: str = field(metadata=key("a DNS label", kind="DnsLabel"))
    version: str = field(
        default=LATEST,
        metadata=key("first 16 hexadecimal digits of the prepared content's hash, or latest"),
    )
    source: str = field(
        default="",
        metadata=key(
            "what the preparation Job reads: stdlib, a folder or s3://BUCKET/PREFIX; "
            "absent: no preparation"
        ),
    )
    format: str = field(
        default="",
        metadata=key(
            "parquet, jsonl or text; absent: by each file's content and suffix",
            kind="DataFormat",
        ),
    )
    column: str = field(
        default="",
        metadata=key("text column of parquet and jsonl files; absent: text"),
    )
    tokenizer: str = field(
        default="",
        metadata=key(
            "bytes, train:VOCAB to train one on this text, or the absolute path of a tokenizer.json; "
            "absent: bytes",
        ),
    )
    resources: PreparationResources = field(
        default=PreparationResources(),
        metadata=key("cpu and memory of the preparation Job"),
    )
    image: str = ""
    """Image of the preparation Job, by digest; empty: the run's."""

    @property
    def path(self) -> str:
        """Where the trainer finds it."""
        return f"{DATA_MOUNT}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Requests and limits of one node's pod besides GPUs, as Kubernetes quantities.

    Absent ones are the run's share of the smallest node that it may get (training/placement.py).
    """

    cpu: str = field(
        default="", metadata=key("a number of cores; absent: a share of the node", kind="Cores")
    )
    memory: str = field(
        default="", metadata=key("a size such as 64Gi; absent: a share of the node", kind="Size")
    )
    shm: str = field(
        default="",
        metadata=key("a size such as 32Gi, part of memory; absent: a quarter of it", kind="Size"),
    )


NO_DATASET: Final = Dataset(name="")
"""Of a run whose program reads what it names in its command."""


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """Settings of NCCL and torch.distributed; absent ones follow from the pool's network."""

    debug: str = field(default="", metadata=key("NCCL's log level", kind="NcclDebug"))
    subsystems: tuple[str, ...] = field(
        default=(), metadata=key("subsystems that NCCL logs", kind="NcclSubsystems")
    )
    interface: str = field(
        default="", metadata=key("network interface of pods, such as eth0", kind="Interface")
    )
    buffer_bytes: int | None = field(
        default=None,
        metadata=key("size of NCCL's buffers between two GPUs, in bytes", ge=4096, le=2**30),
    )
    threads: int | None = field(
        default=None, metadata=key("CUDA threads per block of NCCL's kernels", kind="NcclThreads")
    )
    algorithms: tuple[str, ...] = field(
        default=(), metadata=key("algorithms that NCCL may choose", kind="NcclAlgorithms")
    )
    mtu: int | None = field(
        default=None,
        metadata=key("MTU in bytes that the interface must have", ge=1280, le=65536),
    )
    distributed_debug: str = field(
        default="", metadata=key("checks of torch.distributed", kind="DistributedDebug")
    )


@dataclass(frozen=True, kw_only=True)
class Groups:
    """Replica groups of `nodes` each, which may leave and join the run while it trains; docs/elastic.md."""

    min: int = field(
        default=1,
        metadata=key("groups with which training begins; below them it saves and waits", ge=1),
    )
    max: int = field(metadata=key("groups that train at most", ge=1, le=GROUPS_MAX))
    spares: int = field(
        default=0,
        metadata=key(
            "groups beyond max that follow the run, to replace lost ones", ge=0, le=GROUPS_MAX
        ),
    )
    on_demand: int | None = field(
        default=None,
        metadata=key(
            "groups that run on on-demand or reserved nodes only, and all others on spot nodes only; absent: "
            "each group tries the pools in the order of its team's queue",
            ge=0,
        ),
    )

    @property
    def count(self) -> int:
        """Groups that are created."""
        return self.max + self.spares


@dataclass(frozen=True, kw_only=True)
class RunKeys:
    """Keys that a RunSpec keeps as its run file states them; each is declared here and nowhere else.

    training/run_schema.py derives the run file's model from them.
    """

    name: str = field(metadata=key("a DNS label that begins with a letter", kind="RunName"))
    version: int = field(metadata=key("a number, 1 for the first", ge=1))
    team: str = field(metadata=key("a team of the stack"))
    job_kind: str = field(
        default="jobset",
        metadata=key("kind of Kubernetes object that runs the gang"),
    )
    nodes: int = field(metadata=key("a number of nodes", ge=1, le=NODES_MAX))
    processes_per_node: int = field(
        metadata=key("a number of GPUs", alias="gpusPerNode", ge=1, le=1000)
    )
    """Ranks per node; one GPU each."""
    gpu_model: str = field(
        default="", metadata=key("GPU model of the nodes, as in their label gpu.model; absent: any")
    )
    dataset: Dataset = field(
        default=NO_DATASET,
        metadata=key("name, version and source; the built-in trainer requires it"),
    )
    resources: Resources = field(default=Resources(), metadata=key("cpu, memory and shm"))
    network: NetworkSettings = field(
        default=NetworkSettings(),
        metadata=key("settings of NCCL and torch.distributed"),
    )
    save_seconds: float = field(
        default=30.0,
        metadata=key("slowest checkpoint save in seconds; shutdown timeouts derive from it", gt=0),
    )
    secrets: tuple[str, ...] = field(
        default=(),
        metadata=key("team secrets whose variables the run gets"),
    )
    priority: str = field(
        default="",
        metadata=key("WorkloadPriorityClass and PriorityClass; absent: the tier's default"),
    )
    max_restarts: int = field(
        default=3,
        metadata=key("failures after which the run ends; preemptions do not count", ge=0, le=1000),
    )
    max_hours: float | None = field(
        default=None, metadata=key("wall-clock limit in hours while admitted", gt=0)
    )
    cost_cap_usd: float | None = field(
        default=None,
        metadata=key("limit in USD of maxHours at the highest price the run can be charged", gt=0),
    )
    deadline: str = field(
        default="",
        metadata=key(
            'time by which the run must have ended, in UTC, in quotes, such as "2027-03-01T09:00:00Z"; '
            "`trainyard run advise` counts with it",
            kind="Instant",
        ),
    )
    continues: str = field(
        default="",
        metadata=key(
            "id of a finished run of the team whose newest checkpoint the run starts at; absent: step 0",
            kind="RunId",
        ),
    )
    groups: Groups | None = field(
        default=None,
        metadata=key(
            "replica groups of `nodes` each, which may leave and join; absent: one gang",
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How a run was launched, besides the commit."""

    dirty: bool | None = None
    """Whether the checkout differed from its commit; None: not known."""
    by: str = ""
    """Who launched it, as the machine of the launch names them; empty: not known."""
    at: str = ""
    """When the stack's update ran that launched it, in UTC; empty: no update did, or it is not known."""


NOT_KNOWN: Final = Launch()


@dataclass(frozen=True, kw_only=True)
class RunSpec(RunKeys):
    """One version of one run, complete: equal specs are the same run, a change makes a new one."""

    tier: str
    image: str
    """Reference by digest: REPOSITORY@sha256:DIGEST."""
    config: Mapping[str, Any]
    """The trainer's configuration, overrides merged in."""
    seed: int = 0
    parallelism: Mapping[str, int] = field(default_factory=dict)
    """Ranks per dimension (data, tensor, pipeline ...); the product is the world size."""
    capacity_types: tuple[str, ...] = ("spot", "on-demand")
    """Capacity that the run may be admitted to, in the order of its tier's preference."""
    program: Program | None = None
    """None: the built-in trainer."""
    sweep: str = ""
    """The sweep that it belongs to, NAME-vVERSION; empty: none."""
    weights: str = ""
    """The model that is fetched to the folder `model.path` of its configuration: s3://BUCKET/PREFIX or
    hub:ORG/NAME@COMMIT; empty: none."""
    collective_gbps: float | None = None
    """Bus bandwidth in GB/s that its pods must measure before the trainer starts; None: not measured."""
    group: int | None = field(default=None, metadata={"of_gang": True})
    """The group that is rendered, from 0; not part of the run's id. None: the whole run. See `gangs`."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name: got {self.name!r}; allowed a lower-case DNS label")
        if min(self.version, self.nodes, self.processes_per_node) < 1:
            raise ValueError("version, nodes and processes_per_node: allowed >= 1")
        if not re.search(r"@sha256:[0-9a-f]{64}$", self.image):
            raise ValueError(f"image: got {self.image!r}; allowed REPOSITORY@sha256:DIGEST")
        if any(len(gang) > RUN_ID_MAX for gang in gang_ids(self.run_id, self.groups)):
            raise ValueError(f"run id {self.run_id} is over {RUN_ID_MAX} characters; shorten name")

    @functools.cached_property
    def spec_hash(self) -> str:
        """SHA-256 over every field that has not its default: 64 hexadecimal characters."""
        return content_hash(_hashed(self))

    @property
    def document_hash(self) -> str:
        """SHA-256 of the specification without images, tier and what the stack has its pods measure.

        What is left is what its run file, its configuration and the source of its program say.
        """
        hashed = _hashed(self)
        for name in ("image", "tier", "collective_gbps"):
            hashed.pop(name, None)
        hashed.get("dataset", {}).pop("image", None)
        return content_hash(hashed)

    @functools.cached_property
    def run_id(self) -> str:
        """NAME-vVERSION-HASH8: a DNS label that names every object of the run."""
        return f"{self.name}-v{self.version}-{self.spec_hash[:RUN_ID_HASH_CHARS]}"

    @property
    def gang_id(self) -> str:
        """Name of the object that is queued: the run's id, with groups `RUN_ID-gN`."""
        return self.run_id if self.group is None else group_id(self.run_id, self.group)

    def gangs(self) -> list[RunSpec]:
        """Return what is admitted at once, each by itself: the run's groups, or the run."""
        if self.groups is None:
            return [self]
        return [dataclasses.replace(self, group=number) for number in range(self.groups.count)]

    @property
    def gang_capacity_types(self) -> tuple[str, ...]:
        """Capacity that this gang may be admitted to: `groups.onDemand` divides the groups."""
        on_demand = self.groups.on_demand if self.groups else None
        if on_demand is None or self.group is None:
            return self.capacity_types
        spot = self.group >= on_demand
        return tuple(one for one in self.capacity_types if (one == SPOT) is spot)

    @property
    def world_size(self) -> int:
        """Ranks of a gang."""
        return self.nodes * self.processes_per_node

    @property
    def image_digest(self) -> str:
        """`sha256:` and 64 hexadecimal characters."""
        return self.image.rpartition("@")[2]

    @property
    def grace(self) -> GraceBudget:
        """The run's shutdown budget."""
        return GraceBudget.for_save(self.save_seconds)

    @property
    def run_dir(self) -> str:
        """The run's folder inside its containers."""
        return f"{CHECKPOINT_MOUNT}/{self.run_id}"

    def record(self, *, stack: str, git_commit: str, launch: Launch = NOT_KNOWN) -> dict[str, Any]:
        """Return the run's origin: `run.json` in its containers, and a part of every checkpoint's manifest.

        `git_commit`: of the checkout that first deployed the run, or `unknown`. The trainer records the version of
        the dataset that it resolved. What has no value is left out.
        """
        known = {
            "program": self.program.record() if self.program else None,
            "dirty": launch.dirty,
            "launched_by": launch.by,
            "launched_at": launch.at,
            "continues": self.continues,
            "groups": dataclasses.asdict(self.groups) if self.groups else None,
        }
        return {
            "run_id": self.run_id,
            "name": self.name,
            "version": self.version,
            "team": self.team,
            "tier": self.tier,
            "launcher": self.job_kind,
            "git_commit": git_commit,
            "image": self.image,
            "image_digest": self.image_digest,
            "dataset": {"name": self.dataset.name, "version": self.dataset.version},
            "config_hash": self.spec_hash,
            "hyperparameter_hash": content_hash(
                self.program.identity() if self.program else dict(self.config)
            ),
            "seed": self.seed,
            "nodes": self.nodes,
            "processes_per_node": self.processes_per_node,
            "world_size": self.world_size,
            "parallelism": dict(self.parallelism) or {"data": self.world_size},
            "checkpoint_path": f"{self.run_dir}/{CHECKPOINTS_DIR}",
            "job_spec_revision": JOB_SPEC_REVISION,
            "stack": stack,
            "capacity_types": list(self.capacity_types),
            "grace": dataclasses.asdict(self.grace),
            **{name: value for name, value in known.items() if value not in (None, "")},
        }
