"""The model: its shape, and where its weights come from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal

from training.trainer.config.limits import Mistakes, positive
from training.trainer.config.parallel import ModelShape

CONFIG_FILE: Final = "config.json"
"""Of a folder that describes a model."""
_NOT_SHAPE: Final = ("path", "weights")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A causal language model, its parameters in float32: Llama of this shape, or a folder's."""

    path: str = ""
    """Folder whose config.json describes a causal language model of transformers; it says the shape
    then, and the fields below are left out. Empty: a Llama with the shape below."""
    weights: Literal["random", "safetensors"] = "random"
    """Initial weights: drawn by the model's own rules from the run's seed, or read from `path`."""
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

    def mistakes(self) -> Mistakes:
        """What cannot work, one line each: path, got, allowed, remedy."""
        if self.weights == "safetensors" and not self.path:
            yield "model.weights: got safetensors; allowed with model.path, where they are read"
        if self.path:
            yield from self._said_twice()
            return
        for name in ("hidden_size", "intermediate_size", "layers", "heads", "kv_heads"):
            yield from positive(f"model.{name}", getattr(self, name))
        yield from positive("model.initializer_range", self.initializer_range)
        if self.vocab_size < 257:
            yield f"model.vocab_size: got {self.vocab_size}; allowed >= 257"
        if self.heads > 0 and self.hidden_size % (2 * self.heads):
            yield (
                f"model.hidden_size: got {self.hidden_size}; allowed a multiple of "
                f"2 x heads = {2 * self.heads} (rotary embeddings turn pairs)"
            )
        if self.kv_heads > 0 and self.heads % self.kv_heads:
            yield f"model.kv_heads: got {self.kv_heads}; allowed a divisor of {self.heads}"

    def identity(self) -> dict[str, Any]:
        """What must not change while a run goes on: its shape, wherever a folder lies by then."""
        if self.path:
            content = (Path(self.path) / CONFIG_FILE).read_bytes()
            return {"config_sha256": hashlib.sha256(content).hexdigest()}
        return {name: getattr(self, name) for name in self._shape_fields}

    def shape(self) -> ModelShape:
        """What decides how the model can be divided; of a folder's only once it is read."""
        return ModelShape(
            kind="llama",
            layers=self.layers,
            heads=self.heads,
            kv_heads=self.kv_heads,
            intermediate_size=self.intermediate_size,
            tied=self.tie_embeddings,
        )

    @property
    def _shape_fields(self) -> Sequence[str]:
        return [field.name for field in fields(self) if field.name not in _NOT_SHAPE]

    def _said_twice(self) -> Mistakes:
        for name in self._shape_fields:
            if getattr(self, name) != getattr(type(self), name):
                yield (
                    f"model.{name}: got {getattr(self, name)} besides model.path; "
                    "allowed in the folder's config.json only; leave it out here"
                )
