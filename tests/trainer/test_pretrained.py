"""Weights that `save_pretrained` wrote become the model's, all of them, or are refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from trainer.config import parse
from trainer.config_errors import ConfigError
from trainer.parallel import build
from trainer.parallel.world import World

SHAPE: dict[str, Any] = {
    "vocab_size": 260,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 32,
}
EXPERTS: dict[str, Any] = {**SHAPE, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": SHAPE,
    "Mixtral": {**EXPERTS, "num_local_experts": 4},
    "Qwen3Moe": {**EXPERTS, "num_experts": 4, "head_dim": 16},
    "Qwen2": {**SHAPE, "tie_word_embeddings": True},
    "GptOss": {**EXPERTS, "num_local_experts": 4, "head_dim": 16},
    "GPT2": {"vocab_size": 260, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32},
    "Gemma3": {**SHAPE, "head_dim": 16},
    "DeepseekV3": {  # with a persistent buffer, e_score_correction_bias
        **EXPERTS,
        "num_key_value_heads": 2,
        "n_routed_experts": 4,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "q_lora_rank": 8,
        "kv_lora_rank": 8,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 16,
        "v_head_dim": 16,
    },
}
"""Settings of tiny models by the prefix of their class."""


def saved(folder: Path, family: str, **options: Any) -> dict[str, torch.Tensor]:
    """Write a model of random weights as transformers does; return its tensors."""
    import transformers

    architecture = getattr(transformers, f"{family}LMHeadModel", None) or getattr(
        transformers, f"{family}ForCausalLM"
    )
    torch.manual_seed(3)
    model = architecture(architecture.config_class(**FAMILIES[family]))
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.normal_()
    model.save_pretrained(folder, **options)
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def read(folder: Path, **model: Any) -> dict[str, torch.Tensor]:
    """Build the folder's model with its weights; return its tensors."""
    config = parse(
        {
            "steps": 100,
            "device": "cpu",
            "data": {"path": "/x", "sequence_length": 8},
            "model": {"path": str(folder), "weights": "safetensors", **model},
        }
    )
    layout = config.parallel.layout(1)
    world = World(rank=0, size=1, layout=layout, device=torch.device("cpu"))
    network = build.build_network(config, world, 257)
    network.init_weights()
    return network.unwrapped.state_dict()


def assert_same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert found.keys() == wanted.keys()
    assert [name for name in wanted if not torch.equal(found[name], wanted[name])] == []


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_of_every_family_are_read_as_transformers_wrote_them(
    family: str, tmp_path: Path
) -> None:
    wanted = saved(tmp_path / "whole", family)
    assert_same(read(tmp_path / "whole"), wanted)
    saved(tmp_path / "parts", family, max_shard_size="20KB")
    assert (tmp_path / "parts" / "model.safetensors.index.json").exists()
    assert_same(read(tmp_path / "parts"), wanted)


WEIGHTS = "model.safetensors"


def changed(folder: Path, **tensors: torch.Tensor | None) -> None:
    """Store other tensors; None removes one. Names have `__` for each dot."""
    stored = load_file(folder / WEIGHTS)
    for name, tensor in tensors.items():
        stored.pop(name.replace("__", "."), None)
        if tensor is not None:
            stored[name.replace("__", ".")] = tensor
    save_file(stored, folder / WEIGHTS)


def refusal(folder: Path, **model: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        read(folder, **model)
    (line,) = caught.value.lines
    return line


def test_an_export_with_the_names_of_the_model_is_read(tmp_path: Path) -> None:
    wanted = saved(tmp_path, "Mixtral")
    assert "model.layers.0.mlp.experts.gate_up_proj" in wanted
    assert "model.layers.0.mlp.experts.gate_up_proj" not in load_file(tmp_path / WEIGHTS)
    save_file(wanted, tmp_path / WEIGHTS)
    assert_same(read(tmp_path), wanted)


def test_names_without_the_prefix_of_the_model_are_read(tmp_path: Path) -> None:
    wanted = saved(tmp_path, "Qwen2")
    stored = load_file(tmp_path / WEIGHTS)
    save_file({name.removeprefix("model."): t for name, t in stored.items()}, tmp_path / WEIGHTS)
    assert_same(read(tmp_path), wanted)


def test_a_tensor_without_a_place_is_refused_unless_it_is_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = saved(tmp_path, "Llama")
    bias = "model.layers.0.self_attn.q_proj.bias"
    changed(tmp_path, model__layers__0__self_attn__q_proj__bias=torch.ones(32), zz=torch.ones(1))
    line = refusal(tmp_path)
    assert f"{tmp_path}: {bias} is not a tensor of the model (and 1 more)" in line
    assert "model.ignore_tensors" in line
    assert f"{bias} is not a tensor" in refusal(tmp_path, ignore_tensors=["z*"])
    assert_same(read(tmp_path, ignore_tensors=["*.q_proj.bias", "zz"]), wanted)
    assert f"{tmp_path}: 2 tensors are not read: {bias}, zz" in capsys.readouterr().err


def test_a_missing_expert_is_refused(tmp_path: Path) -> None:
    saved(tmp_path, "Mixtral")
    changed(tmp_path, model__layers__1__block_sparse_moe__experts__2__w1__weight=None)
    line = refusal(tmp_path)
    assert "3 of 4 tensors" in line and WEIGHTS in line


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("Llama", "model.layers.1.mlp.up_proj.weight"),
        ("Mixtral", "model.layers.1.block_sparse_moe.experts.2.w1.weight"),
    ],
)
def test_values_that_are_not_finite_are_found_while_weights_are_read(
    family: str, name: str, value: float, tmp_path: Path
) -> None:
    saved(tmp_path, family)
    tensor = load_file(tmp_path / WEIGHTS)[name]
    tensor[3, 4] = value
    changed(tmp_path, **{name.replace(".", "__"): tensor.bfloat16()})
    line = refusal(tmp_path)
    assert f"{tmp_path / WEIGHTS}: {name} holds 1 values that are NaN or infinite" in line


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.float8_e4m3fn])
def test_quantised_weights_are_refused(dtype: torch.dtype, tmp_path: Path) -> None:
    saved(tmp_path, "Llama")
    changed(tmp_path, model__norm__weight=torch.ones(32).to(dtype))
    assert "model.norm.weight has type" in refusal(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    values["quantization_config"] = {"quant_method": "fp8"}
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert "the weights are quantised" in refusal(tmp_path)


def test_a_tied_tensor_is_read_under_either_name_and_must_be_the_same_under_both(
    tmp_path: Path,
) -> None:
    wanted = saved(tmp_path, "Qwen2")
    tied = wanted["model.embed_tokens.weight"].clone()
    changed(tmp_path, lm_head__weight=tied, model__embed_tokens__weight=None)
    assert_same(read(tmp_path), wanted)
    changed(tmp_path, lm_head__weight=tied, model__embed_tokens__weight=tied.clone())
    assert_same(read(tmp_path), wanted)
    changed(tmp_path, lm_head__weight=tied + 1)
    assert "to which the model ties it" in refusal(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": 3},
        {"architectures": []},
        {"hidden_size": "wide"},
        {"num_attention_heads": 0},
        {"hidden_size": 33},
    ],
)
def test_a_configuration_that_describes_no_model_is_one_line(
    change: dict[str, Any], tmp_path: Path
) -> None:
    saved(tmp_path, "Llama")
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**values, **change}))
    line = refusal(tmp_path)
    assert line.startswith("model.path: ") and "\n" not in line


def test_infinite_numbers_of_a_configuration_are_read(tmp_path: Path) -> None:
    saved(tmp_path, "Llama")
    values = json.loads((tmp_path / "config.json").read_text())
    values["classifier_dropout"] = {"__float__": "Infinity"}
    (tmp_path / "config.json").write_text(json.dumps(values))
    from trainer.config.settings import ModelConfig
    from trainer.parallel.architecture import model_settings

    settings = model_settings(ModelConfig(path=str(tmp_path)), 8)
    assert settings.classifier_dropout == float("inf")
