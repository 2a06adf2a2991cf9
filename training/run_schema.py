"""The keys of a run file, and the RunSpec that they resolve to. Unknown keys are rejected.

Keys that a run keeps as they stand are declared once, in training.spec.RunKeys, and derived from there. What
has another form in the file is declared here, next to `RunFile.resolve`.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import pydantic
from pydantic import AfterValidator, Field, WrapValidator

from infra.domain import naming
from infra.domain.platform import Platform
from infra.domain.pools import Capacity
from infra.domain.tier import TIERS
from infra.sections.errors import invalid
from infra.sections.types import (
    Bool,
    Cores,
    DnsLabel,
    Int,
    Number,
    Size,
    Str,
    StrictModel,
    matching,
)
from training import weights
from training.program import Program
from training.spec import RunKeys, RunSpec
from trainyard import contract


def _run_name(value: str) -> str:
    if not value[:1].isalpha():
        raise invalid(
            "run-name", "must start with a letter: Services are named after it", "rename it"
        )
    # A run's objects are named NAME-vVERSION-...: admission refuses this prefix in other pods' names.
    if f"{value}-".startswith(naming.DEV_PREFIX):
        raise invalid(
            "run-name",
            f"must not be devpod or begin with {naming.DEV_PREFIX}: names of dev pods begin so",
            "rename it",
        )
    return value


def _null_is_empty(value: Any, check: Callable[[Any], Any]) -> Any:
    return "" if value is None else check(value)


def _instant(value: str) -> str:
    """Check a time in UTC; the pattern alone admits a 30th of February."""
    try:
        if not _INSTANT.fullmatch(value):
            raise ValueError
        datetime.fromisoformat(value)
    except ValueError:
        raise invalid(
            "deadline", "must be a time in UTC such as 2027-03-01T09:00:00Z, in quotes"
        ) from None
    return value


_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_STRICT: Final[Mapping[Any, Any]] = {str: Str, int: Int, float: Number, bool: Bool}
_KINDS: Final[Mapping[str, Any]] = {
    "RunName": Annotated[DnsLabel, AfterValidator(_run_name)],
    "DnsLabel": DnsLabel,
    "Cores": Cores,
    "Size": Size,
    "NcclDebug": Literal["VERSION", "WARN", "INFO", "TRACE"],
    "NcclSubsystems": tuple[
        Literal["INIT", "COLL", "P2P", "SHM", "NET", "GRAPH", "TUNING", "ENV", "ALLOC", "ALL"], ...
    ],
    "NcclThreads": Literal[64, 128, 256, 512] | None,
    "NcclAlgorithms": tuple[
        Literal["Ring", "Tree", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT"], ...
    ],
    "DistributedDebug": Literal["OFF", "INFO", "DETAIL"],
    "Interface": Annotated[
        Str,
        AfterValidator(matching("interface", r"[A-Za-z0-9_.-]{1,15}", "the name of an interface")),
    ],
    "RunId": Annotated[
        Str, AfterValidator(matching("run-id", contract.RUN_ID_FORM.pattern, "a run id"))
    ],
    "Instant": Annotated[Str, AfterValidator(_instant)],
    "DataFormat": Literal["parquet", "jsonl", "text"],
}


PREPARATION_IMAGE: Final = "trainer"
"""The stack's image that prepares the datasets of runs with a program of their own."""


def derive(keys: type[Any]) -> type[StrictModel]:
    """Return the model of the fields of a dataclass that are keys of run files (training.spec.key)."""
    hints = typing.get_type_hints(keys)
    fields: dict[str, Any] = {}
    for one in dataclasses.fields(keys):
        if about := one.metadata.get("key"):
            options = {"description": about["description"], **about["bounds"]}
            if about["alias"]:
                options["alias"] = about["alias"]
            if one.default is not dataclasses.MISSING:
                options["default"] = one.default
            kind = _KINDS.get(about["kind"]) or _strict(hints[one.name])
            if one.default == "":
                kind = Annotated[kind, WrapValidator(_null_is_empty)]
            fields[one.name] = (kind, Field(**options))
    return pydantic.create_model(keys.__name__, __base__=StrictModel, **fields)


def _strict(hint: Any) -> Any:
    """The type of a key: not coerced, and an instance of the dataclass where the hint is one."""
    if dataclasses.is_dataclass(hint):
        return Annotated[derive(hint), AfterValidator(lambda found: hint(**dict(found)))]  # type: ignore[arg-type,operator]
    if typing.get_origin(hint) is tuple:
        return tuple[_strict(typing.get_args(hint)[0]), ...]  # type: ignore[misc]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return _strict(typing.get_args(hint)[0]) | None
    return _STRICT[hint]


Text = Annotated[str, Field(strict=True)]


class ProgramSection(StrictModel):
    """The program that the run starts instead of the built-in trainer; see docs/programs.md."""

    launcher: Literal["torchrun", "accelerate", "deepspeed", "mpirun", "python"] = "torchrun"
    """What starts the ranks. Rank counts and addresses are derived from the run."""
    command: tuple[Str, ...] = Field(
        min_length=1, description="the script and its arguments, such as [train.py, --lr, '0.1']"
    )
    """Script and arguments; placeholders such as {checkpoints} are expanded."""
    source: Str | None = None
    """Folder of the repository with the code, packed by content. Default: the code is in the image."""
    env: dict[Str, Text] = Field(default_factory=dict)
    """Environment variables of the program; placeholders are expanded."""
    accelerate: Str | None = None
    """Accelerate's configuration, a YAML file of the repository."""
    deepspeed: Str | None = None
    """DeepSpeed's configuration, a JSON file of the repository; mounted as {deepspeed_config}."""
    model_parameters: Int | None = Field(default=None, ge=1)
    """Number of parameters, to check DeepSpeed's offload against memory."""
    tracking_uri: Str | None = None
    """MLflow server, http or https. Default: none."""
    progress_timeout_seconds: Int | None = Field(default=None, ge=0)
    """Seconds without a report of `trainyard.log` or a checkpoint, after the first one, after which the ranks
    fail as hung; 0: never. Default: 3600."""


class CheckpointSection(StrictModel):
    """When checkpoints are written; overrides the trainer's configuration."""

    every_steps: Int | None = Field(default=None, ge=1)
    """Steps between checkpoints. Default: the configuration's."""
    every_seconds: Number | None = Field(default=None, gt=0)
    """Seconds between checkpoints, such as 600. Default: the configuration's."""
    export: Bool | None = None
    """Write the model for transformers to `export` at the end. Default: the configuration's."""


class ParallelismSection(StrictModel):
    """Ranks per dimension; overrides `parallel` of the trainer's configuration."""

    replicate: Int | None = Field(default=None, ge=1)
    """Replicas of the model (DDP). Default: the configuration's."""
    shard: Int | None = Field(default=None, ge=1)
    """Ranks that shard the parameters (FSDP). Default: the configuration's."""
    tensor: Int | None = Field(default=None, ge=1)
    """Ranks that split each matrix. Default: the configuration's."""
    pipeline: Int | None = Field(default=None, ge=1)
    """Pipeline stages. Default: the configuration's."""


class RequireSection(StrictModel):
    """Requirements on the nodes of the run, measured before its trainer starts."""

    collective_gbps: Number | None = Field(default=None, gt=0, alias="collectiveGBps")
    """Bus bandwidth in GB/s of an all-reduce over all ranks."""


RUNS_MAX = 500
"""Runs of a sweep: its state is one ConfigMap of at most 1 MiB."""


class AshaSection(StrictModel):
    """When method `asha` compares runs and stops the worse ones."""

    min_steps: Int = Field(ge=1, description="a number of steps")
    """Step of the first comparison; the next ones follow at `reduction` times the step before."""
    reduction: Int = Field(default=3, ge=2, le=10)
    """One of so many runs continues after each comparison."""


class RangeSection(StrictModel):
    """Numbers from which values are sampled."""

    min: Number = Field(description="a number")
    """Smallest value."""
    max: Number = Field(description="a number, more than min")
    """Largest value."""
    scale: Literal["linear", "log"] = "linear"
    """log: every order of magnitude has the same probability; min must be above 0."""
    integer: Bool = False
    """Whether values are whole numbers."""


class SweepSection(StrictModel):
    """Makes the file a family of runs with different hyperparameters; see `trainyard sweep`."""

    method: Literal["grid", "random", "asha"] = Field(description="grid, random or asha")
    """grid: all combinations of listed values. random: samples. asha: samples, the worse of which stop early."""
    parameters: dict[str, Any] = Field(
        min_length=1,
        description="values by setting, such as optimizer.learning_rate: [0.001, 0.01]",
    )
    """Values by dotted setting of the trainer's configuration, or by `env.NAME` of `program.env`: a list, or a
    range `{min, max, scale: linear | log, integer}` that is sampled."""
    runs: Int | None = Field(default=None, ge=1, le=RUNS_MAX)
    """Number of runs; with `grid` the most that the combinations may be. Default: all combinations."""
    parallel: Int = Field(default=4, ge=1, le=RUNS_MAX)
    """Runs that are queued or running at a time."""
    metric: Str = "loss"
    """Metric that runs are compared by."""
    goal: Literal["minimize", "maximize"] = "minimize"
    """Whether a smaller or a larger value of the metric is better."""
    seed: Int = Field(default=0, ge=0)
    """Seed of the samples."""
    cost_cap_usd: Number | None = Field(default=None, gt=0)
    """Limit in USD of all runs together, at the highest price that each can be charged; requires `maxHours`."""
    asha: AshaSection | None = None
    """Comparisons of method `asha`, and only of it."""


if TYPE_CHECKING:
    # mypy takes models for dataclasses that are not frozen, which these are.
    class _Keys(StrictModel, RunKeys): ...  # type: ignore[misc]
else:
    _Keys = derive(RunKeys)


class RunFile(_Keys):  # type: ignore[misc]
    """One version of a run."""

    allow_spot: Bool | None = None
    """Whether spot capacity is used. Default: the tier's, true for research and false for production."""
    image: Str = Field(description="a name of the stack's images, or a reference by digest")
    """Name of one of the stack's images, or a reference by digest."""
    program: ProgramSection | None = None
    """The program that the run starts (docs/programs.md). Default: the built-in trainer with `config`."""
    config: Str | None = Field(default=None, description="the stem of a file in training/configs")
    """Configuration of the built-in trainer: stem of a file in training/configs."""
    overrides: dict[str, Any] = Field(default_factory=dict)
    """Settings that replace the config's, nested like them."""
    parallelism: ParallelismSection = ParallelismSection()
    """Ranks per dimension; overrides the trainer's `parallel`."""
    checkpoint: CheckpointSection = CheckpointSection()
    """When checkpoints are written; overrides the trainer's `checkpoint`."""
    require: RequireSection = RequireSection()
    """Conditions on the assigned nodes."""
    sweep: SweepSection | None = None
    """Makes the file a family of runs, which `trainyard sweep run FILE` submits; absent: one run."""

    def resolve(
        self,
        platform: Platform,
        images: Mapping[str, str],
        settings: Mapping[str, Any],
        dimensions: Mapping[str, int],
        program: Program | None = None,
    ) -> RunSpec:
        """Return the run on a platform.

        `images`: references by name; `settings`: the trainer's configuration with all overrides merged in;
        `dimensions`: ranks per dimension where the model is divided; `program`: what runs instead of the trainer.
        """
        tier = TIERS[platform.teams[self.team].tier]
        spot = tier.spot_by_default if self.allow_spot is None else self.allow_spot
        config, fetched = weights.separate(settings)
        kept = {one.name: getattr(self, one.name) for one in dataclasses.fields(RunKeys)}
        resolved = {
            "tier": tier.name,
            "image": images.get(self.image, self.image),
            "config": config,
            "weights": fetched,
            "seed": int(settings.get("seed", 0)),
            "parallelism": dict(dimensions),
            "capacity_types": tuple(
                c.value for c in tier.capacity_order if spot or c is not Capacity.SPOT
            ),
            "secrets": tuple(sorted(set(self.secrets))),
            "collective_gbps": self.require.collective_gbps,
            "program": program,
        }
        if program and self.dataset.source:
            # A program's image need not contain what prepares datasets.
            prepared_by = images[PREPARATION_IMAGE]
            resolved["dataset"] = dataclasses.replace(self.dataset, image=prepared_by)
        return RunSpec(**kept | resolved)
