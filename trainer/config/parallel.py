"""Parallelism, number formats and execution of blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from trainer.config.limits import Issues, out_of_range, positive
from trainer.config_errors import ConfigIssue

Dtype = Literal["float32", "bfloat16"]
ComputeDtype = Literal["float32", "bfloat16", "float16"]

LLAMA_LIKE: Final = ("llama", "mistral", "qwen2")
"""Model types that can be cut inside and into stages: their blocks have Llama's modules."""


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """What decides how a model can be divided."""

    kind: str
    """transformers' model_type."""
    layers: int
    heads: int
    kv_heads: int
    intermediate_size: int
    tied: bool
    """Whether input and output embeddings are one tensor."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Ranks per dimension of the device mesh, slowest first; the product is the world size.

    Neighbouring ranks share a tensor group, which needs the fastest links; pipeline stages are farthest apart,
    because they exchange least.
    """

    pipeline: int
    """Stages, each a run of the model's blocks."""
    replicate: int
    """Copies of the (sharded) model."""
    shard: int
    """Ranks over which parameters, gradients and optimizer state are cut."""
    tensor: int
    """Ranks that compute one block together."""

    @property
    def world(self) -> int:
        """Ranks in all."""
        return self.pipeline * self.data * self.tensor

    @property
    def data(self) -> int:
        """Ranks that read different samples: replicate x shard."""
        return self.replicate * self.shard

    @property
    def plain(self) -> bool:
        """Whether every rank holds the whole model."""
        return self.world == self.replicate

    def data_rank(self, rank: int) -> int:
        """Which of the `data` shares of the samples a rank reads, 0 first."""
        return rank // self.tensor % self.data

    def stage(self, rank: int) -> int:
        """Which part of the pipeline a rank computes, 0 first."""
        return rank // (self.tensor * self.data)

    def counts(self, rank: int) -> bool:
        """Whether a rank's loss is the one that counts for its samples: exactly one rank's does."""
        return rank % self.tensor == 0 and self.stage(rank) == self.pipeline - 1

    def replicas(self) -> list[list[int]]:
        """Return the sets of ranks that hold the same part of the model."""
        inner = self.shard * self.tensor
        stages, places, copies = range(self.pipeline), range(inner), range(self.replicate)
        return [
            [(stage * self.replicate + copy) * inner + place for copy in copies]
            for stage in stages
            for place in places
        ]

    def dimensions(self) -> dict[str, int]:
        """For records: the dimensions in use; `data` alone where every rank holds all."""
        if self.plain:
            return {"data": self.world}
        sizes = {name: getattr(self, name) for name in ("pipeline", "replicate", "shard", "tensor")}
        return {name: size for name, size in sizes.items() if size > 1}


@dataclass(frozen=True, kw_only=True)
class ParallelConfig:
    """Ranks per dimension. The defaults replicate the model on every rank (DDP)."""

    replicate: int | None = None
    """Copies of the model; null: as many as the world leaves (needed for a changing world)."""
    shard: int = 1
    """Ranks that share one copy's parameters, gradients and optimizer state (FSDP2); with
    `replicate` above 1 this is HSDP."""
    tensor: int = 1
    """Ranks that split each block's matrices (DTensor); divides the attention heads."""
    pipeline: int = 1
    """Pipeline stages into which the blocks are divided. Its micro-batches are those of gradient
    accumulation, at least as many as stages."""
    schedule: Literal["1f1b", "gpipe"] = "1f1b"
    """Order of the pipeline's micro-batches: 1f1b holds fewer activations than gpipe."""

    def validate(self) -> Issues:
        """Yield what cannot work."""
        for name in ("replicate", "shard", "tensor", "pipeline"):
            value = getattr(self, name)
            if value is not None:
                yield from positive(f"parallel.{name}", value)

    @property
    def fixed(self) -> int:
        """Ranks that the dimensions need at least; the world size is a multiple of it."""
        return (self.replicate or 1) * self.shard * self.tensor * self.pipeline

    def fits(self, world_size: int) -> bool:
        """Whether these dimensions make up a world of this size."""
        if self.replicate is not None:
            return self.fixed == world_size
        return world_size % self.fixed == 0

    def layout(self, world_size: int) -> Layout:
        """The mesh of a world that `fits`."""
        rest = world_size // (self.shard * self.tensor * self.pipeline)
        return Layout(
            pipeline=self.pipeline,
            replicate=rest if self.replicate is None else self.replicate,
            shard=self.shard,
            tensor=self.tensor,
        )

    def model_issues(self, shape: ModelShape) -> Issues:
        """Yield why a model of this shape cannot be divided like this."""
        for name in ("tensor", "pipeline"):
            if getattr(self, name) > 1 and shape.kind not in LLAMA_LIKE:
                yield out_of_range(
                    f"parallel.{name}",
                    f"{getattr(self, name)} with model type {shape.kind}",
                    f"must be 1 unless the model type is one of {', '.join(LLAMA_LIKE)}",
                    "use parallel.shard instead",
                )
        for name in ("heads", "kv_heads", "intermediate_size"):
            if self.tensor > 0 and getattr(shape, name) % self.tensor:
                size = getattr(shape, name)
                yield out_of_range(
                    "parallel.tensor", self.tensor, f"must be a divisor of model.{name} = {size}"
                )
        if self.pipeline > shape.layers:
            yield out_of_range(
                "parallel.pipeline",
                self.pipeline,
                f"must be at most the model's {shape.layers} layers",
                "lower it",
            )
        if self.pipeline > 1 and shape.tied:
            yield ConfigIssue(
                path="parallel.pipeline",
                problem=f"{self.pipeline} with tied embeddings, which the first and the last "
                "stage would share",
                valid="must be 1 with tied embeddings",
                action="set model.tie_embeddings: false",
                code="conflict",
            )

    def batch_issues(self, micro_batches: int) -> Issues:
        """Check that this many micro-batches per step and data rank fill the pipeline."""
        if self.schedule == "1f1b" and micro_batches < self.pipeline:
            yield out_of_range(
                "parallel.pipeline",
                f"{self.pipeline} stages for {micro_batches} micro-batches per step",
                "must be at most the number of micro-batches with schedule 1f1b",
                "lower batch.micro_samples",
            )

    def world_issues(self, world_size: int) -> Issues:
        """Check that the dimensions make up a world of this size."""
        if not self.fits(world_size):
            names = [n for n in ("pipeline", "replicate", "shard", "tensor") if getattr(self, n)]
            product = " x ".join(f"{name} {getattr(self, name)}" for name in names)
            rule = "the world size" if self.replicate else "a divisor of the world size"
            yield out_of_range(
                "parallel",
                f"{product} = {math.prod(getattr(self, n) for n in names)}",
                f"must be {rule} = {world_size}",
                "change a dimension or the number of ranks",
            )


@dataclass(frozen=True, kw_only=True)
class PrecisionConfig:
    """Number formats. Parameters and optimizer state are always float32."""

    compute: ComputeDtype = "float32"
    """Format of matrix products and activations; bfloat16 requires a GPU that supports it. With float16, for older
    GPUs, the loss is scaled, and a step whose gradients overflow changes no weight."""
    reduce: Dtype = "float32"
    """Format of gradients while they are summed over the ranks of `parallel.shard`."""

    def validate(self) -> Issues:
        """Yield what cannot work."""
        if self.reduce == "bfloat16" and self.compute == "float32":
            yield ConfigIssue(
                path="precision.reduce",
                problem="'bfloat16' loses the precision of float32 gradients",
                valid="must be float32 when precision.compute is float32",
                action="change one of them",
                code="conflict",
            )


@dataclass(frozen=True, kw_only=True)
class BlocksConfig:
    """How each of the model's blocks is run."""

    recompute: bool = False
    """Keep only the input of each block, and compute its activations again in the backward pass
    (activation checkpointing): less memory, about a third more work."""
    compile: bool = False
    """torch.compile each block once; they share one compilation. The first step takes longer."""

    def validate(self) -> Issues:
        """Yield nothing: any combination works."""
        yield from ()
