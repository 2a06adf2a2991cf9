"""The model: its shape, and where its weights come from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal

from trainer.config.limits import Issues, out_of_range, positive
from trainer.config.parallel import ModelShape
from trainer.config_errors import ConfigIssue

CONFIG_FILE: Final = "config.json"
"""Of a folder that describes a model."""
_NOT_SHAPE: Final = ("path", "weights", "ignore_tensors")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A causal language model, its parameters in float32: Llama of this shape, or a folder's."""

    path: str = ""
    """Absolute path of a folder whose config.json describes a causal language model of transformers and
    sets the shape; the fields below must be absent then. A run's configuration may name a model to fetch
    instead: hub:ORG/NAME@COMMIT or s3://BUCKET/PREFIX. Empty: a Llama with the shape below."""
    weights: Literal["random", "safetensors"] = "random"
    """Initial weights: drawn by the model's own rules from the run's seed, or read from `path`."""
    ignore_tensors: tuple[str, ...] = ()
    """Tensors in the weights of `path` that the model has not and that need not be read: glob patterns such as
    `mtp.*`. Others without a place in the model are refused."""
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

    def validate(self) -> Issues:
        """Yield what cannot work."""
        if self.weights == "safetensors" and not self.path:
            yield ConfigIssue(
                path="model.weights",
                problem="'safetensors' without model.path",
                valid="requires model.path, from which weights are read",
                action="set model.path, or model.weights: random",
                code="conflict",
            )
        if self.path:
            if not self.path.startswith("/"):
                yield ConfigIssue(
                    path="model.path",
                    problem=f"{self.path!r} is not an absolute path",
                    valid="must be a folder such as /data/models/NAME, or in a run's configuration "
                    "s3://BUCKET/PREFIX or hub:ORG/NAME@COMMIT",
                    action=_hint(self.path),
                    code="invalid-path",
                )
            yield from self._set_twice()
            return
        for name in ("hidden_size", "intermediate_size", "layers", "heads", "kv_heads"):
            yield from positive(f"model.{name}", getattr(self, name))
        yield from positive("model.initializer_range", self.initializer_range)
        if self.vocab_size < 257:
            yield out_of_range("model.vocab_size", self.vocab_size, "must be at least 257")
        if self.heads > 0 and self.hidden_size % (2 * self.heads):
            yield out_of_range(
                "model.hidden_size",
                self.hidden_size,
                f"must be a multiple of 2 x heads = {2 * self.heads} (rotary embeddings turn pairs)",
            )
        if self.kv_heads > 0 and self.heads % self.kv_heads:
            yield out_of_range(
                "model.kv_heads", self.kv_heads, f"must be a divisor of model.heads = {self.heads}"
            )

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

    def _set_twice(self) -> Issues:
        for name in self._shape_fields:
            if getattr(self, name) != getattr(type(self), name):
                yield ConfigIssue(
                    path=f"model.{name}",
                    problem=f"{getattr(self, name)} besides model.path",
                    valid="must be set in the folder's config.json only",
                    action="remove it",
                    code="conflict",
                )


def _hint(path: str) -> str:
    """Return what to write instead of a path that is not absolute."""
    if path.count("/") == 1 and "@" not in path and all(path.split("/")):
        return f"write hub:{path}@COMMIT for a model of the hub"
    return "copy the model to such a folder, and set its path"
