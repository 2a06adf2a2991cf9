"""Llama without transformers: the model that `model.*` settings describe.

Parameters have transformers' names and the passes give the same bits, so checkpoints and exports load there.
transformers itself would double the time from a restart to its first step (2.7 s of imports).
Architecture: Touvron et al. 2023, "LLaMA", section 2.2; grouped key/value heads: Ainslie et al. 2023.

B samples of S tokens, H the width of the residual stream, V the vocabulary, N heads of D numbers.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional

_EPSILON: Final = 1e-6
_ROTARY_BASE: Final = 10_000.0


@dataclass(frozen=True, kw_only=True)
class LlamaSettings:
    """The shape of a Llama, with the names of transformers' config.json."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    tie_word_embeddings: bool
    initializer_range: float
    max_position_embeddings: int

    model_type = "llama"

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads

    def to_dict(self) -> dict[str, Any]:
        return {
            "architectures": ["LlamaForCausalLM"],
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": 1,
            "dtype": "float32",
            "eos_token_id": 2,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "mlp_bias": False,
            "model_type": self.model_type,
            "pad_token_id": None,
            "rms_norm_eps": _EPSILON,
            "rope_parameters": {"rope_theta": _ROTARY_BASE, "rope_type": "default"},
            "use_cache": False,
            **asdict(self),
        }


class Llama(nn.Module):
    """Token ids, int64 [B, S], to next-token logits [B, S, V]."""

    def __init__(self, config: LlamaSettings) -> None:
        super().__init__()
        self.config = config
        self.model = LlamaBody(config)
        self.lm_head = _matrix(config.hidden_size, config.vocab_size)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, 0.0, config.initializer_range)
        self.tie_weights()

    def tie_weights(self, **_: Any) -> None:
        """Make input and output embeddings one parameter if the settings say so; as transformers' method."""
        if self.config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        logits_BSV: torch.Tensor = self.lm_head(self.model(input_ids=input_ids))
        return logits_BSV


class LlamaBody(nn.Module):
    """Embeds tokens and runs all blocks; returns hidden states [B, S, H]."""

    inverse_frequencies: torch.Tensor

    def __init__(self, config: LlamaSettings) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(LlamaBlock(config) for _ in range(config.num_hidden_layers))
        self.norm = LlamaNorm(config.hidden_size)
        pairs = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
        self.register_buffer("inverse_frequencies", 1.0 / _ROTARY_BASE**pairs, persistent=False)

    def forward(
        self, input_ids: torch.Tensor | None = None, inputs_embeds: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Run the blocks on token ids, or on hidden states where another stage has embedded them."""
        hidden_BSH = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        rotation = self._rotation(hidden_BSH)
        for block in self.layers:
            hidden_BSH = block(hidden_BSH, rotation=rotation)
        result: torch.Tensor = self.norm(hidden_BSH)
        return result

    @torch.no_grad()
    def _rotation(self, hidden_BSH: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cosine and sine of each position's angles, [1, 1, S, D], in the hidden states' type."""
        positions_S = torch.arange(hidden_BSH.shape[1], device=hidden_BSH.device)
        frequencies = self.inverse_frequencies.to(hidden_BSH.device, torch.float32)
        angles = positions_S[:, None].float() * frequencies
        whole = torch.cat((angles, angles), dim=-1)[None, None]
        return whole.cos().to(hidden_BSH.dtype), whole.sin().to(hidden_BSH.dtype)


class LlamaBlock(nn.Module):
    """Attention and feed-forward layer, each behind a norm and added to the residual stream."""

    def __init__(self, config: LlamaSettings) -> None:
        super().__init__()
        self.self_attn = LlamaAttention(config)
        self.mlp = LlamaMlp(config)
        self.input_layernorm = LlamaNorm(config.hidden_size)
        self.post_attention_layernorm = LlamaNorm(config.hidden_size)

    def forward(
        self, hidden_BSH: torch.Tensor, *, rotation: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        hidden_BSH = hidden_BSH + self.self_attn(self.input_layernorm(hidden_BSH), rotation)
        result: torch.Tensor = hidden_BSH + self.mlp(self.post_attention_layernorm(hidden_BSH))
        return result


class LlamaAttention(nn.Module):
    """Causal attention with rotary positions; under tensor parallelism this rank's heads."""

    def __init__(self, config: LlamaSettings) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        keys = config.num_key_value_heads * config.head_dim
        self.q_proj = _matrix(config.hidden_size, config.hidden_size)
        self.k_proj = _matrix(config.hidden_size, keys)
        self.v_proj = _matrix(config.hidden_size, keys)
        self.o_proj = _matrix(config.hidden_size, config.hidden_size)

    def forward(
        self, hidden_BSH: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        """Return the sum over heads, [B, S, H]."""
        queries_BNSD = _rotated(self._heads(self.q_proj(hidden_BSH)), *rotation)
        keys_BNSD = _rotated(self._heads(self.k_proj(hidden_BSH)), *rotation)
        values_BNSD = self._heads(self.v_proj(hidden_BSH))
        found_BNSD = functional.scaled_dot_product_attention(
            queries_BNSD,
            keys_BNSD,
            values_BNSD,
            is_causal=True,
            scale=self.head_dim**-0.5,
            enable_gqa=queries_BNSD.shape[1] != keys_BNSD.shape[1],
        )
        result: torch.Tensor = self.o_proj(found_BNSD.transpose(1, 2).flatten(2))
        return result

    def _heads(self, projected: torch.Tensor) -> torch.Tensor:
        return projected.view(*projected.shape[:-1], -1, self.head_dim).transpose(1, 2)


class LlamaMlp(nn.Module):
    def __init__(self, config: LlamaSettings) -> None:
        super().__init__()
        self.gate_proj = _matrix(config.hidden_size, config.intermediate_size)
        self.up_proj = _matrix(config.hidden_size, config.intermediate_size)
        self.down_proj = _matrix(config.intermediate_size, config.hidden_size)

    def forward(self, hidden_BSH: torch.Tensor) -> torch.Tensor:
        inner = functional.silu(self.gate_proj(hidden_BSH)) * self.up_proj(hidden_BSH)
        result: torch.Tensor = self.down_proj(inner)
        return result


class LlamaNorm(nn.Module):
    """Division by the root mean square, computed in float32, and a learnt scale."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        nn.init.ones_(self.weight)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the normalized input in its own type, scaled."""
        exact = hidden.to(torch.float32)
        scale = torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + _EPSILON)
        return self.weight * (exact * scale).to(hidden.dtype)


def _matrix(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


def _rotated(heads: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Turn each pair (i, i + D/2) of a head by its position's angle. Source: Su et al. 2021, "RoFormer"."""
    first, second = heads.chunk(2, dim=-1)
    return heads * cosine + torch.cat((-second, first), dim=-1) * sine
