"""The model: its shape."""

from __future__ import annotations

from dataclasses import dataclass

from training.trainer.config.limits import Mistakes, positive


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

    def mistakes(self) -> Mistakes:
        """What cannot work, one line each: path, got, allowed, remedy."""
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
