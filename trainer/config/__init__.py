"""The trainer's settings with units, defaults and limits; one file per section.

This package needs only the standard library and yaml: launchers and checks may import it without
loading torch. `load` reads a file strictly and reports every issue at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from trainer.batch import accumulation_steps, batch_issues, scaled_learning_rate, scaling_warnings
from trainer.config.batch import BatchConfig
from trainer.config.checkpoints import CheckpointConfig
from trainer.config.data import DataConfig
from trainer.config.groups import GroupsConfig
from trainer.config.limits import Issues, not_negative, out_of_range, positive
from trainer.config.loader import build, merge_assignments
from trainer.config.model import ModelConfig
from trainer.config.optimization import OptimizerConfig, ScheduleConfig
from trainer.config.parallel import BlocksConfig, ParallelConfig, PrecisionConfig
from trainer.config.reporting import EvaluationConfig, ReportConfig
from trainer.config_errors import ConfigError, ConfigIssue, within
from trainyard.contract import START_TIMEOUT_S


@dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """All settings of a run."""

    steps: int
    """Optimizer steps of the whole run."""
    seed: int = 0
    """Seed of the initial weights, the order of the data and every random choice."""
    deterministic: bool = True
    """Whether only bit-reproducible algorithms are used; an operation without one is an error."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: cuda if this rank has a GPU."""
    threads: int = 1
    """CPU threads per rank. Losses are bit-identical only for equal thread counts."""
    start_timeout_s: float = START_TIMEOUT_S
    """How long ranks wait for each other in seconds until the first step is done: to stage data, to load a
    checkpoint, to compile. At least `collective_timeout_s`."""
    collective_timeout_s: float = 120.0
    """Timeout of a collective in seconds from then on; when it expires, the process ends with the cause."""
    model: ModelConfig = field(default_factory=ModelConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    precision: PrecisionConfig = field(default_factory=PrecisionConfig)
    blocks: BlocksConfig = field(default_factory=BlocksConfig)
    data: DataConfig = field(default_factory=DataConfig)
    batch: BatchConfig = field(default_factory=BatchConfig)
    groups: GroupsConfig = field(default_factory=GroupsConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    report: ReportConfig = field(default_factory=ReportConfig)

    @property
    def start_limit_s(self) -> float:
        """Timeout of a collective until the first step is done."""
        return max(self.start_timeout_s, self.collective_timeout_s)

    @property
    def peak_learning_rate(self) -> float:
        """Peak of the schedule, scaled to the batch if `scale_learning_rate` is set."""
        reference = self.optimizer.scale_learning_rate
        samples = self.batch.global_samples
        return scaled_learning_rate(self.optimizer.learning_rate, samples, reference)

    def samples_at_once(self, data_ranks: int) -> int:
        """Return the samples for which a data rank sums gradients by itself: of a step, or of a logical worker."""
        return self.batch.global_samples // data_ranks // self._workers

    @property
    def _workers(self) -> int:
        return self.groups.workers if self.groups.enabled else 1

    def warnings(self) -> list[str]:
        """Return what may be a mistake though it works, one line each."""
        return scaling_warnings(
            self.optimizer.learning_rate,
            self.batch.global_samples,
            self.optimizer.scale_learning_rate,
            self.schedule.warmup_steps,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, nested as in the file; `parse` reads them."""
        return asdict(self)

    def validate(self) -> Issues:
        """Yield what cannot work."""
        for name in ("steps", "threads", "start_timeout_s", "collective_timeout_s"):
            yield from positive(name, getattr(self, name))
        yield from not_negative("seed", self.seed)
        for section in (
            self.model,
            self.parallel,
            self.precision,
            self.blocks,
            self.data,
            self.batch,
            self.groups,
            self.optimizer,
            self.schedule,
            self.evaluation,
            self.checkpoint,
            self.report,
        ):
            yield from section.validate()
        if not self.model.path:
            yield from self.parallel.model_issues(self.model.shape())
        yield from self._elastic_issues()
        if self.schedule.warmup_steps >= self.steps > 0:
            yield out_of_range(
                "schedule.warmup_steps",
                self.schedule.warmup_steps,
                f"must be below steps = {self.steps}",
            )

    def _elastic_issues(self) -> Issues:
        """Yield what an elastic run cannot do."""
        if not self.groups.enabled:
            return
        samples, workers = self.batch.global_samples, self.groups.workers
        if workers > 0 and samples % workers:
            yield out_of_range(
                "batch.global_samples",
                samples,
                f"must be a multiple of groups.workers = {workers}",
            )
        if not self.deterministic:
            yield ConfigIssue(
                path="deterministic",
                problem="false in an elastic run",
                valid="must be true with groups.max above 0",
                action="change it, or remove groups",
                code="conflict",
            )

    def group_issues(self, data_ranks: int) -> Issues:
        """Yield why the samples of a logical worker cannot be divided over the data ranks of a group."""
        samples, micro = self.batch.global_samples, self.batch.micro_samples
        if samples % (self.groups.workers * data_ranks):
            yield out_of_range(
                "batch.global_samples",
                samples,
                "must be a multiple of groups.workers x data ranks of a group = "
                f"{self.groups.workers} x {data_ranks}",
            )
            return
        each, pipeline = self.samples_at_once(data_ranks), self.parallel.pipeline
        if each % micro and (each > micro or pipeline > 1):
            yield out_of_range(
                "batch.micro_samples",
                micro,
                f"must be a divisor of the {each} samples that a rank computes of each logical worker"
                + (", or above them" if pipeline == 1 else ""),
            )
        elif pipeline > 1:
            yield from self.parallel.batch_issues(each // micro)


def parse(values: Mapping[str, Any], source: str = "config") -> TrainerConfig:
    """Return the configuration in `values`. Raises ConfigError with every issue."""
    issues: list[ConfigIssue] = []
    config = build(TrainerConfig, values, issues)
    if config is not None:
        issues += config.validate()
    if config is None or issues:
        raise ConfigError(within(source, issues))
    return config


def load(file: Path, assignments: Sequence[str] = ()) -> TrainerConfig:
    """Read a YAML file and apply `key=value` assignments (dotted keys, YAML values) on top.

    Raises ConfigError with every issue, also for a file that cannot be read.
    """
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError([_unreadable(file, f"cannot be read: {reason}")]) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError([_unreadable(file, " ".join(str(error).split()))]) from None
    values = {} if values is None else values
    if not isinstance(values, dict):
        raise ConfigError([_unreadable(file, f"contains a {type(values).__name__}")])
    return parse(merge_assignments(values, assignments), str(file))


def _unreadable(file: Path, problem: str) -> ConfigIssue:
    return ConfigIssue(
        path=str(file),
        problem=problem,
        valid="must be a YAML file with a mapping of settings",
        action="correct it",
        code="invalid-file",
    )


def world_issues(config: TrainerConfig, world_size: int) -> list[ConfigIssue]:
    """Return what is wrong with the mesh and the batch for this many ranks; empty when both fit.

    In an elastic run these are the ranks of one group.
    """
    issues = list(config.parallel.world_issues(world_size))
    if issues:
        return issues
    batch, data_ranks = config.batch, config.parallel.layout(world_size).data
    if config.groups.enabled:
        return list(config.group_issues(data_ranks))
    issues = batch_issues(batch.global_samples, batch.micro_samples, data_ranks)
    passes = accumulation_steps(batch.global_samples, batch.micro_samples, data_ranks)
    return issues + list(config.parallel.batch_issues(passes or config.parallel.pipeline))


__all__ = [
    "BatchConfig",
    "BlocksConfig",
    "CheckpointConfig",
    "DataConfig",
    "EvaluationConfig",
    "GroupsConfig",
    "ModelConfig",
    "OptimizerConfig",
    "ParallelConfig",
    "PrecisionConfig",
    "ReportConfig",
    "ScheduleConfig",
    "TrainerConfig",
    "load",
    "parse",
    "world_issues",
]
