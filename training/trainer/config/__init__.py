"""What a training run can be told, with units, defaults and limits; one file per section.

This package needs only the standard library and yaml: launchers and checks may import it without
loading torch. `load` reads a file strictly and reports every mistake at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from training.trainer.config.batch import BatchConfig
from training.trainer.config.checkpoints import CheckpointConfig
from training.trainer.config.data import DataConfig
from training.trainer.config.limits import Mistakes, not_negative, positive
from training.trainer.config.model import ModelConfig
from training.trainer.config.optimization import OptimizerConfig, ScheduleConfig
from training.trainer.config.reporting import EvaluationConfig, ReportConfig
from training.trainer.strict import ConfigError, build, merge_assignments


@dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """Everything a run can be told."""

    steps: int
    """Optimizer steps of the whole run."""
    seed: int = 0
    """Of the initial weights, the order of the data and every random choice."""
    deterministic: bool = True
    """Only algorithms that give the same bits each time; an error where there is none."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: cuda when there is one for this rank."""
    threads: int = 1
    """CPU threads per rank. Losses are bit-identical only for equal thread counts."""
    collective_timeout_s: float = 120.0
    """A collective that waits longer ends the process with a cause instead of hanging."""
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    batch: BatchConfig = field(default_factory=BatchConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    report: ReportConfig = field(default_factory=ReportConfig)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, nested as in the file; `parse` turns it back."""
        return asdict(self)

    def mistakes(self) -> Mistakes:
        """What cannot work, one line each: path, got, allowed, remedy."""
        for name in ("steps", "threads", "collective_timeout_s"):
            yield from positive(name, getattr(self, name))
        yield from not_negative("seed", self.seed)
        for section in (
            self.model,
            self.data,
            self.batch,
            self.optimizer,
            self.schedule,
            self.evaluation,
            self.checkpoint,
            self.report,
        ):
            yield from section.mistakes()
        if self.schedule.warmup_steps >= self.steps > 0:
            yield (
                f"schedule.warmup_steps: got {self.schedule.warmup_steps}; "
                f"allowed < steps = {self.steps}"
            )


def parse(values: Mapping[str, Any], source: str = "config") -> TrainerConfig:
    """The configuration in `values`. Raises ConfigError with one line per mistake."""
    mistakes: list[str] = []
    config = build(TrainerConfig, values, mistakes)
    if config is not None:
        mistakes += config.mistakes()
    if config is None or mistakes:
        raise ConfigError([f"{source}: {mistake}" for mistake in mistakes])
    return config


def load(file: Path, assignments: Sequence[str] = ()) -> TrainerConfig:
    """Read a YAML file and apply `key=value` assignments (dotted keys, YAML values) on top.

    Raises ConfigError with one line per mistake, also for a file that cannot be read.
    """
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError([f"{file}: cannot be read: {reason}"]) from None
    except yaml.YAMLError as error:
        raise ConfigError([f"{file}: not YAML: {' '.join(str(error).split())}"]) from None
    values = {} if values is None else values
    if not isinstance(values, dict):
        got = type(values).__name__
        raise ConfigError([f"{file}: got a {got}; allowed a mapping of settings"])
    return parse(merge_assignments(values, assignments), str(file))


def world_mistakes(config: TrainerConfig, world_size: int) -> list[str]:
    """What is wrong with the batch for this many ranks; empty when it divides."""
    per_pass = config.batch.micro_samples * world_size
    if config.batch.global_samples % per_pass == 0:
        return []
    return [
        f"batch.global_samples: got {config.batch.global_samples}; allowed a multiple of "
        f"micro_samples x world size = {config.batch.micro_samples} x {world_size}; "
        "change batch.global_samples or batch.micro_samples"
    ]


__all__ = [
    "BatchConfig",
    "CheckpointConfig",
    "ConfigError",
    "DataConfig",
    "EvaluationConfig",
    "ModelConfig",
    "OptimizerConfig",
    "ReportConfig",
    "ScheduleConfig",
    "TrainerConfig",
    "load",
    "parse",
    "world_mistakes",
]
