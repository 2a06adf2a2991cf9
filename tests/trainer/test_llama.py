"""Our Llama against transformers': the same names, the same bits, a config.json that loads there."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from trainer.config.settings import ModelConfig
from trainer.parallel.architecture import model_settings
from trainer.parallel.llama import Llama
from trainer.parallel.passes import compute_logits, mean_loss

pytestmark = pytest.mark.long(11)

SHAPES = {
    "heads of their own": ModelConfig(),
    "shared key/value heads": ModelConfig(heads=4, kv_heads=2, hidden_size=64),
    "tied embeddings": ModelConfig(tie_embeddings=True, layers=2),
}
LENGTH = 48


def both(shape: ModelConfig) -> tuple[Llama, torch.nn.Module]:
    """Our model and transformers', with the same weights."""
    from transformers.models.llama.modeling_llama import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(7)
    settings = model_settings(shape, LENGTH)
    ours = Llama(settings)
    theirs = LlamaForCausalLM(LlamaConfig(**settings.to_dict(), attn_implementation="sdpa"))
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(torch.randn_like(parameter) / 9)
    missing = theirs.load_state_dict(ours.state_dict(), strict=True)
    assert not missing.missing_keys and not missing.unexpected_keys
    return ours, theirs


@pytest.mark.parametrize("compute", [None, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", SHAPES)
def test_the_passes_give_the_bits_of_transformers(name: str, compute: torch.dtype | None) -> None:
    ours, theirs = both(SHAPES[name])
    tokens_BS1 = torch.randint(264, (3, LENGTH + 1), generator=torch.Generator().manual_seed(1))
    with torch.autocast("cpu", compute or torch.bfloat16, enabled=compute is not None):
        assert torch.equal(compute_logits(ours, tokens_BS1), compute_logits(theirs, tokens_BS1))
        losses = [mean_loss(model, tokens_BS1) for model in (ours, theirs)]
    for loss in losses:
        loss.backward()  # type: ignore[no-untyped-call]
    assert torch.equal(*losses)
    gradients = [dict(model.named_parameters()) for model in (ours, theirs)]
    assert list(gradients[0]) == list(gradients[1])
    for key, parameter in gradients[0].items():
        same = gradients[1][key].grad
        assert parameter.grad is not None and same is not None
        assert torch.equal(parameter.grad, same), key


@pytest.mark.parametrize("name", SHAPES)
def test_the_configuration_means_the_same_to_transformers(name: str) -> None:
    from transformers.models.llama.modeling_llama import LlamaConfig

    shape = SHAPES[name]
    written = model_settings(shape, LENGTH).to_dict()
    read: dict[str, Any] = LlamaConfig.from_dict(written).to_dict()
    assert {key: read[key] for key in written} == written
    plain = LlamaConfig(
        vocab_size=shape.vocab_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        tie_word_embeddings=shape.tie_embeddings,
        max_position_embeddings=LENGTH,
    ).to_dict()
    differs = {key for key in plain if plain[key] != read.get(key)}
    assert differs <= {"architectures", "dtype", "use_cache", "transformers_version"}
