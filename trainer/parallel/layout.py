"""Which rank holds and computes what: arithmetic of the device mesh, without torch."""

from __future__ import annotations

from dataclasses import dataclass


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
    """Ranks over which parameters, gradients and optimizer state are sharded."""
    tensor: int
    """Ranks that compute one block together."""

    @property
    def world(self) -> int:
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

    def dimensions(self) -> dict[str, int]:
        """For records: the dimensions in use; `data` alone where every rank holds all."""
        if self.plain:
            return {"data": self.world}
        sizes = {name: getattr(self, name) for name in ("pipeline", "replicate", "shard", "tensor")}
        return {name: size for name, size in sizes.items() if size > 1}
