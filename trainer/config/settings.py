"""The settings: type, bounds, default, unit and meaning of each; rules.py has what holds between them.

Those of the optimizer are in trainer/optimizer.py, beside what they set.
"""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from trainer.optimizer import OptimizerConfig
from trainer.parallel.layout import Layout, ModelShape
from trainer.section import AS_NUMBER, Count, CountOrZero, Flag, Positive, Section, Share, Text
from trainyard.contract import LATEST, START_TIMEOUT_S

CONFIG_FILE: Final = "config.json"
"""Of a folder that describes a model."""
DEFAULT_INTERVAL_S: Final = 600.0
"""By time, because steps take from milliseconds to minutes and a loss costs time."""
GPU_PREFETCH_STEPS: Final = 8


class ModelConfig(Section):
    """A causal language model, its parameters in float32: Llama of this shape, or a folder's."""

    path: Text = ""
    """Folder with the config.json of a causal language model, which sets the shape in place of the keys below; in
    a run also hub:ORG/NAME@COMMIT or s3://BUCKET/PREFIX. Empty: a Llama."""
    weights: Literal["random", "safetensors"] = "random"
    """Initial weights: drawn from the seed, or read from `path`."""
    ignore_tensors: tuple[Text, ...] = ()
    """Stored tensors to skip, as glob patterns such as `mtp.*`; others without a place in the model are
    refused."""
    vocab_size: Annotated[int, Field(strict=True, ge=257), AS_NUMBER] = 264
    """Tokens the model knows; at least the dataset's (257: bytes and a document boundary)."""
    hidden_size: Count = 128
    """Width of the residual stream; a multiple of `heads`."""
    intermediate_size: Count = 352
    """Width of the gated feed-forward layer."""
    layers: Count = 4
    """Decoder layers."""
    heads: Count = 4
    """Attention heads."""
    kv_heads: Count = 4
    """Key/value heads; divides `heads`."""
    tie_embeddings: Flag = False
    """Whether input and output embeddings are one tensor."""
    initializer_range: Positive = 0.02
    """Standard deviation of the initial weights."""

    def identity(self) -> dict[str, Any]:
        """Return what must match on resume: the model's shape; the path of its folder may differ."""
        if self.path:
            content = (Path(self.path) / CONFIG_FILE).read_bytes()
            return {"config_sha256": hashlib.sha256(content).hexdigest()}
        return {name: getattr(self, name) for name in SHAPE_FIELDS}

    def shape(self) -> ModelShape:
        """Return what decides how the model can be divided; not for a model in a folder."""
        return ModelShape(
            kind="llama",
            layers=self.layers,
            heads=self.heads,
            kv_heads=self.kv_heads,
            intermediate_size=self.intermediate_size,
            tied=self.tie_embeddings,
        )


SHAPE_FIELDS: Final = [
    name for name in ModelConfig.model_fields if name not in ("path", "weights", "ignore_tensors")
]
"""Settings that a folder's config.json replaces."""


class ParallelConfig(Section):
    """Ranks per dimension. The defaults replicate the model on every rank (DDP)."""

    replicate: Count | None = None
    """Copies of the model; null: as many as fit."""
    shard: Count = 1
    """Ranks that share one copy's state (FSDP2; with `replicate` above 1 HSDP)."""
    tensor: Count = 1
    """Ranks that split each block's matrices (DTensor); divides the attention heads."""
    pipeline: Count = 1
    """Pipeline stages; at most as many as micro-batches."""
    schedule: Literal["1f1b", "gpipe"] = "1f1b"
    """Order of micro-batches; 1f1b holds fewer activations."""

    def fits(self, world_size: int) -> bool:
        """Return whether these dimensions make up a world of this size."""
        fixed = (self.replicate or 1) * self.shard * self.tensor * self.pipeline
        return fixed == world_size if self.replicate is not None else world_size % fixed == 0

    def layout(self, world_size: int) -> Layout:
        """Return the mesh of a world that `fits`."""
        rest = world_size // (self.shard * self.tensor * self.pipeline)
        return Layout(
            pipeline=self.pipeline,
            replicate=rest if self.replicate is None else self.replicate,
            shard=self.shard,
            tensor=self.tensor,
        )


class PrecisionConfig(Section):
    """Number formats. Parameters and optimizer state are always float32."""

    compute: Literal["float32", "bfloat16", "float16"] = "float32"
    """Format of matrix products and activations. With float16 the loss is scaled, and a step whose gradients
    overflow changes no weight."""
    reduce: Literal["float32", "bfloat16"] = "float32"
    """Format of gradients summed over `parallel.shard`."""


class BlocksConfig(Section):
    """How each of the model's blocks is run."""

    recompute: Flag = False
    """Activation checkpointing: less memory, about a third more work."""
    compile: Flag = False
    """torch.compile the blocks; the first step takes longer."""


class SourceConfig(Section):
    """One more dataset that is mixed in."""

    path: Text
    """As `data.path`."""
    version: Text = LATEST
    """As `data.version`."""
    weight: Positive = 1.0
    """Its share of the samples."""


class DataConfig(Section):
    """Datasets, and how they are divided into samples."""

    path: Text = ""
    """Folder written by `python -m trainer.prepare`, or s3://BUCKET/PREFIX with a copy, which requires
    `staging`."""
    version: Text = LATEST
    """Sixteen hexadecimal characters, or `latest`; a resumed run keeps its version."""
    weight: Positive = 1.0
    """Share of the samples from `path`, against `sources`."""
    sources: tuple[SourceConfig, ...] = ()
    """Datasets that are mixed in, with the same tokenizer."""
    sequence_length: Count = 128
    """Tokens per sample that the model predicts."""
    documents: Literal["join", "separate"] = "join"
    """Whether a sample may cross the end of a document. separate leaves out documents shorter than a sample."""
    verify: Literal["full", "sizes"] = "full"
    """Before the first step: check every shard's SHA-256, or only its size."""
    staging: Text | None = None
    """Folder on a local disk to copy shards to, once per node; null: none."""
    prefetch_steps: CountOrZero | None = None
    """Steps to read ahead in the background; null: 8 with a GPU, else 0."""

    def steps_ahead(self, *, gpu: bool) -> int:
        """Return `prefetch_steps`, or what its null means."""
        if self.prefetch_steps is not None:
            return self.prefetch_steps
        return GPU_PREFETCH_STEPS if gpu else 0

    def paths(self) -> tuple[str, ...]:
        """Return the path of each dataset, `path` first."""
        return (self.path, *(source.path for source in self.sources))

    def versions(self) -> tuple[str, ...]:
        """Return the version that is asked for of each dataset."""
        return (self.version, *(source.version for source in self.sources))

    def weights(self) -> tuple[int, ...]:
        """Return the weight of each dataset, as the smallest whole numbers with the same shares."""
        exact = [Fraction(str(share)) for share in self.shares()]
        common = math.lcm(*(share.denominator for share in exact))
        whole = [int(share * common) for share in exact]
        divisor = math.gcd(*whole)
        return tuple(number // divisor for number in whole)

    def shares(self) -> tuple[float, ...]:
        """Return the weight of each dataset as it is set."""
        return (self.weight, *(source.weight for source in self.sources))


class BatchConfig(Section):
    """Samples per optimizer step. The global batch does not change with the world size."""

    global_samples: Count = 32
    """Samples per step over all ranks; a multiple of micro_samples x world size."""
    micro_samples: Count = 16
    """Samples per forward pass on one rank; the rest is gradient accumulation."""

    def passes(self, data_ranks: int) -> int | None:
        """Return the forward passes per step on each data rank; None when the batch does not divide."""
        passes, left = divmod(self.global_samples, self.micro_samples * data_ranks)
        return None if left else passes


class GroupsConfig(Section):
    """Elastic replica groups."""

    workers: Count | None = None
    """Logical workers, a power of two and at least the number of groups; losses depend on it. null: the run is
    not elastic."""
    silent_after_s: Positive = 2.0
    """Seconds without a sign of life after which a group counts as lost."""


class ScheduleConfig(Section):
    """Learning rate over the run: linear warm-up, then the named decay to the last step."""

    kind: Literal["cosine", "linear", "constant"] = "cosine"
    """Decay after the warm-up."""
    warmup_steps: CountOrZero = 10
    """Steps until the peak; fewer than `steps`."""
    final_fraction: Share = 0.1
    """Learning rate at the last step, as a fraction of the peak; ignored by `constant`."""


class EvaluationConfig(Section):
    """Loss on the held-out files, also measured at the end of the run."""

    every_steps: Count | None = 50
    """Steps between evaluations; null: only at the end of the run."""
    samples: Count = 128
    """Samples, spread evenly over the held-out files; all of them when there are fewer."""


class CheckpointConfig(Section):
    """When checkpoints are written and which are kept. One is always written at the end."""

    every_steps: Count | None = None
    """Steps between checkpoints; null: not by steps."""
    every_seconds: Positive | None = None
    """Seconds between checkpoints; null: not by time, or 600 if `every_steps` is null, too."""
    milestone_every_steps: Count | None = None
    """Checkpoints at multiples of this are never deleted; null: no milestones."""
    keep_latest: Count = 2
    """Newest checkpoints kept, besides the best, the milestones and the last known good one."""
    store: Text | None = None
    """s3://BUCKET/PREFIX for this run only; null: the run directory, which all ranks share."""
    deadline_s: Positive = 60.0
    """Seconds from a notice to a committed checkpoint; a run's `saveSeconds` overrides it."""
    export: Flag = False
    """Write the model for transformers to `export` after the last step; needs memory for the whole model."""

    @property
    def interval_s(self) -> float | None:
        """Seconds of wall clock between checkpoints; None: by steps only."""
        by_default = DEFAULT_INTERVAL_S if self.every_steps is None else None
        return by_default if self.every_seconds is None else self.every_seconds


class ReportConfig(Section):
    """Progress lines and MLflow; metrics.jsonl always has every step."""

    every_seconds: Positive = 5.0
    """Seconds between progress lines."""
    metric_lines_every: Count | None = None
    """Steps between lines `trainyard-metric {...}`, which `trainyard sweep` reads; null: none."""
    mlflow: Text | None = None
    """MLflow's URI without credentials: sqlite:///FILE, http://SERVER or https://SERVER."""
    mlflow_experiment: Text = "trainyard"
    """Experiment of the MLflow run; created if it does not exist."""


class TrainerConfig(Section):
    """All settings of a run."""

    steps: Count
    """Optimizer steps of the whole run."""
    seed: CountOrZero = 0
    """Seed of every random choice."""
    deterministic: Flag = True
    """Use bit-reproducible algorithms only."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: cuda if this rank has a GPU."""
    threads: Count = 1
    """CPU threads per rank; losses depend on it."""
    start_timeout_s: Positive = START_TIMEOUT_S
    """Seconds that ranks wait for each other until the first step is done; at least `collective_timeout_s`."""
    collective_timeout_s: Positive = 120.0
    """Timeout of a collective in seconds from then on."""
    model: ModelConfig = Field(default_factory=ModelConfig)
    parallel: ParallelConfig = Field(default_factory=ParallelConfig)
    precision: PrecisionConfig = Field(default_factory=PrecisionConfig)
    blocks: BlocksConfig = Field(default_factory=BlocksConfig)
    data: DataConfig = Field(default_factory=DataConfig)
    batch: BatchConfig = Field(default_factory=BatchConfig)
    groups: GroupsConfig = Field(default_factory=GroupsConfig)
    optimizer: OptimizerConfig = Field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = Field(default_factory=ScheduleConfig)
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig)
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)
    report: ReportConfig = Field(default_factory=ReportConfig)

    @property
    def start_limit_s(self) -> float:
        """Timeout of a collective in seconds until the first step is done."""
        return max(self.start_timeout_s, self.collective_timeout_s)

    @property
    def peak_learning_rate(self) -> float:
        """Peak of the schedule, scaled to the batch if `scale_learning_rate` is set.

        By the linear rule of Goyal et al. 2017, "Accurate, Large Minibatch SGD", section 2.1.
        """
        peak, reference = self.optimizer.learning_rate, self.optimizer.scale_learning_rate
        return peak if reference is None else peak * (self.batch.global_samples / reference)

    def samples_at_once(self, data_ranks: int) -> int:
        """Return the samples for which a data rank sums gradients by itself: of a step, or of a logical worker."""
        return self.batch.global_samples // data_ranks // (self.groups.workers or 1)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, nested as in the file; `parse` reads them."""
        return self.model_dump()
