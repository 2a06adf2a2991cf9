"""What a training run can be told, with units, defaults and limits.

This module needs only the standard library and yaml: launchers and checks may import it without
loading torch. `load` reads a file strictly and reports every mistake at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from training.spec import LATEST
from training.trainer.strict import ConfigError, build, merge_assignments


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A Llama-shaped causal language model with random initial weights, float32."""

    vocab_size: int = 264
    """Tokens the model knows; at least the dataset's (257: bytes and a document boundary)."""
    hidden_size: int = 128
    """Width of the residual stream; a multiple of `heads`."""
    intermediate_size: int = 352
    """Width of the gated feed-forward layer."""
    layers: int = 4
    """Decoder layers."""
    heads: int = 4
    """Attention heads."""
    kv_heads: int = 4
    """Key/value heads; divides `heads`."""
    tie_embeddings: bool = False
    """Whether input and output embeddings are one tensor."""
    initializer_range: float = 0.02
    """Standard deviation of the initial weights."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which tokens are read, and how they are cut into samples."""

    path: str = ""
    """Folder made by `python -m training.prepare`: holds one folder per version, and `latest`."""
    version: str = LATEST
    """Sixteen hexadecimal characters, or `latest`. A resumed run keeps the version it began with."""
    sequence_length: int = 128
    """Tokens per sample that the model predicts."""
    verify: Literal["full", "sizes"] = "full"
    """Before the first step: check every shard's SHA-256, or only its size."""


@dataclass(frozen=True, kw_only=True)
class BatchConfig:
    """Samples per optimizer step. The global batch does not change with the world size."""

    global_samples: int = 32
    """Samples per step over all ranks; a multiple of micro_samples x world size."""
    micro_samples: int = 16
    """Samples per forward pass on one rank; the rest is gradient accumulation."""


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """AdamW. Weight decay applies to matrices only, not to norms."""

    learning_rate: float = 1e-3
    """Peak learning rate."""
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    weight_decay: float = 0.1
    clip_norm: float = 1.0
    """Gradients are scaled down to this global 2-norm."""


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """Learning rate over the run: linear warm-up, then the named decay to the last step."""

    kind: Literal["cosine", "linear", "constant"] = "cosine"
    warmup_steps: int = 10
    """Steps until the peak; fewer than `steps`."""
    final_fraction: float = 0.1
    """Learning rate at the last step, as a fraction of the peak; ignored by `constant`."""


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Loss on the held-out files, also measured at the end of the run."""

    every_steps: int | None = 50
    """Steps between evaluations; null: only at the end."""
    samples: int = 128
    """Samples, spread evenly over the held-out files; all of them when there are fewer."""


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """When checkpoints are written and which are kept. One is always written at the end."""

    every_steps: int | None = 50
    """Steps between checkpoints; null: not by steps."""
    every_seconds: float | None = None
    """Seconds of wall clock between checkpoints; null: not by time."""
    milestone_every_steps: int | None = None
    """Checkpoints at multiples of this are never deleted; null: no milestones."""
    keep_latest: int = 2
    """Newest checkpoints kept, besides the best, the milestones and the last known good one."""
    deadline_s: float = 60.0
    """Seconds from a notice to a committed checkpoint; a run record's grace budget wins."""


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """What the console shows; metrics.jsonl always has every step."""

    every_seconds: float = 5.0
    """Seconds between progress lines."""


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


_POSITIVE = (
    "steps",
    "threads",
    "collective_timeout_s",
    "model.hidden_size",
    "model.intermediate_size",
    "model.layers",
    "model.heads",
    "model.kv_heads",
    "model.initializer_range",
    "data.sequence_length",
    "batch.global_samples",
    "batch.micro_samples",
    "optimizer.learning_rate",
    "optimizer.epsilon",
    "optimizer.clip_norm",
    "evaluation.every_steps",
    "evaluation.samples",
    "checkpoint.every_steps",
    "checkpoint.every_seconds",
    "checkpoint.milestone_every_steps",
    "checkpoint.keep_latest",
    "checkpoint.deadline_s",
    "report.every_seconds",
)
_NOT_NEGATIVE = ("seed", "optimizer.weight_decay", "schedule.warmup_steps")
_FRACTIONS = ("optimizer.beta1", "optimizer.beta2", "schedule.final_fraction")


def parse(values: Mapping[str, Any], source: str = "config") -> TrainerConfig:
    """The configuration in `values`. Raises ConfigError with one line per mistake."""
    mistakes: list[str] = []
    config = build(TrainerConfig, values, mistakes)
    if config is not None:
        mistakes += _range_mistakes(config)
        mistakes += [] if mistakes else _relation_mistakes(config)
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


def _range_mistakes(config: TrainerConfig) -> list[str]:
    mistakes = []
    for name in _POSITIVE:
        value = _get(config, name)
        if value is not None and not value > 0:
            off = "; use null to switch it off" if name.count("every_") and value == 0 else ""
            mistakes.append(f"{name}: got {value}; allowed > 0{off}")
    for name in _NOT_NEGATIVE:
        if _get(config, name) < 0:
            mistakes.append(f"{name}: got {_get(config, name)}; allowed >= 0")
    for name in _FRACTIONS:
        if not 0 <= _get(config, name) < 1:
            mistakes.append(f"{name}: got {_get(config, name)}; allowed 0 up to, not including, 1")
    return mistakes


def _relation_mistakes(config: TrainerConfig) -> list[str]:
    mistakes = []
    model, batch = config.model, config.batch
    if not config.data.path:
        mistakes.append(
            "data.path: missing; make one with `python -m training.prepare` and name it"
        )
    if model.vocab_size < 257:
        mistakes.append(f"model.vocab_size: got {model.vocab_size}; allowed >= 257")
    if model.heads > 0 and model.hidden_size % (2 * model.heads):
        mistakes.append(
            f"model.hidden_size: got {model.hidden_size}; allowed a multiple of "
            f"2 x heads = {2 * model.heads} (rotary embeddings turn pairs)"
        )
    if model.kv_heads > 0 and model.heads % model.kv_heads:
        mistakes.append(f"model.kv_heads: got {model.kv_heads}; allowed a divisor of {model.heads}")
    if batch.micro_samples > 0 and batch.global_samples % batch.micro_samples:
        mistakes.append(
            f"batch.global_samples: got {batch.global_samples}; allowed a multiple of "
            f"batch.micro_samples = {batch.micro_samples}"
        )
    if config.schedule.warmup_steps >= config.steps > 0:
        mistakes.append(
            f"schedule.warmup_steps: got {config.schedule.warmup_steps}; "
            f"allowed < steps = {config.steps}"
        )
    if config.checkpoint.every_steps is None and config.checkpoint.every_seconds is None:
        mistakes.append(
            "checkpoint: every_steps and every_seconds are both null; "
            "set one, else a crash loses the whole run"
        )
    return mistakes


def _get(config: TrainerConfig, dotted: str) -> Any:
    value: Any = config
    for part in dotted.split("."):
        value = getattr(value, part)
    return value
