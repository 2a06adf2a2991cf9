"""The model: a transformers Llama with random initial weights.

Only the two modules of the architecture are imported; the package's top level and its Auto classes
cost seconds more at every start.
"""

from __future__ import annotations

import torch
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM

from training.trainer.config import ModelConfig


def build(config: ModelConfig, sequence_length: int) -> torch.nn.Module:
    """The model in float32 on the CPU, its weights drawn from torch's global generator."""
    llama = LlamaConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        tie_word_embeddings=config.tie_embeddings,
        initializer_range=config.initializer_range,
        max_position_embeddings=sequence_length,
        attn_implementation="sdpa",
        use_cache=False,
        dtype=torch.float32,
    )
    model: torch.nn.Module = LlamaForCausalLM(llama)
    return model


def mean_loss(model: torch.nn.Module, tokens_BS1: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy over all next-token predictions, nats, a scalar.

    B samples of S + 1 tokens: the first S are the input, the last S the targets; V is the
    vocabulary.
    """
    inputs_BS, targets_BS = tokens_BS1[:, :-1], tokens_BS1[:, 1:]
    logits_BSV = model(input_ids=inputs_BS, use_cache=False).logits
    return torch.nn.functional.cross_entropy(
        logits_BSV.flatten(0, 1).float(), targets_BS.flatten(), reduction="mean"
    )


def parameter_count(model: torch.nn.Module) -> int:
    """Trainable numbers in the model."""
    return sum(parameter.numel() for parameter in model.parameters())
