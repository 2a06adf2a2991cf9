"""A network without processes: how it is described, drawn, read, cut and run."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from trainer.config import parse
from trainer.config.settings import ModelConfig, TrainerConfig
from trainer.config_errors import ConfigError
from trainer.parallel import build, initialization
from trainer.parallel.architecture import build_on_meta, decoder_blocks, model_settings
from trainer.parallel.passes import mean_loss
from trainer.parallel.pipeline_stages import Stage, keep_stage
from trainer.parallel.world import World
from trainyard.tensors.layout import Box

SMALL = ModelConfig(hidden_size=16, intermediate_size=24, layers=3, heads=2, kv_heads=1)
VOCABULARY = 257


@pytest.fixture(scope="module")
def world() -> World:
    """One rank, alone."""
    layout = config().parallel.layout(1)
    return World(rank=0, size=1, layout=layout, device=torch.device("cpu"))


def config(**changes: Any) -> TrainerConfig:
    model = SMALL.model_dump() if "path" not in changes.get("model", {}) else {}
    values = {"steps": 100, "device": "cpu", "data": {"path": "/x", "sequence_length": 8}}
    changes["model"] = {**model, **changes.get("model", {})}
    return parse({**values, **changes})


def built(world: World, **changes: Any) -> build.Network:
    network = build.build_network(config(**changes), world, VOCABULARY)
    network.init_weights()
    return network


def mean(parts_M: torch.Tensor) -> float:
    """The loss of all micro-batches together."""
    return float(sum(parts_M.tolist()))


def weights_of(network: build.Network) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in network.unwrapped.named_parameters()}


def folder(root: Path, kind: str, architecture: str, **values: Any) -> Path:
    root.mkdir(exist_ok=True)
    described = {"model_type": kind, "architectures": [architecture], "vocab_size": 300}
    (root / "config.json").write_text(json.dumps({**described, **values}))
    return root


GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64, "bos_token_id": 0}


def recorded(model: ModelConfig) -> tuple[torch.nn.Module, dict[str, list[initialization.InitOp]]]:
    with initialization.InitRecorder() as recipes:
        module = build_on_meta(model_settings(model, 8))
    return module, recipes.ops_for(module)


def test_a_model_is_described_without_memory_and_its_rules_are_known() -> None:
    model, draws = recorded(SMALL)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert not any(buffer.is_meta for buffer in model.buffers())
    assert draws["model.norm.weight"] == [initialization.InitOp("fill_", (1.0,))]
    assert draws["lm_head.weight"] == [initialization.InitOp("normal_", (0.0, 0.02))]
    assert len(decoder_blocks(model)) == 3


def test_weights_follow_the_seed_the_name_and_the_rules(world: World) -> None:
    first, same, other = (weights_of(built(world, seed=seed)) for seed in (1, 1, 2))
    assert all(torch.equal(first[name], same[name]) for name in first)
    name = "model.layers.0.mlp.up_proj.weight"
    assert not torch.equal(first[name], other[name])
    assert not torch.equal(first[name], first["model.layers.1.mlp.up_proj.weight"])
    assert float(first[name].std()) == pytest.approx(0.02, rel=0.2)
    assert torch.equal(first["model.norm.weight"], torch.ones(16))


def test_any_part_of_a_tensor_is_drawn_as_in_the_whole(
    chance: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(initialization, "_BLOCK_NUMBERS", 40)
    draws = [initialization.InitOp("normal_", (0.0, 1.0)), initialization.InitOp("zero_", (), 7)]

    def drawn(shape: torch.Size, region: Box) -> torch.Tensor:
        part = torch.full(region.shape, torch.nan)
        initialization._draw(part, region, shape, "name", draws, 3)
        return part

    shape = torch.Size((23, 5))
    whole = drawn(shape, Box((0, 0), (23, 5)))
    assert torch.equal(whole[7], torch.zeros(5)) and whole.isfinite().all()
    for _ in range(20):
        begin, left = chance.randrange(23), chance.randrange(5)
        size = (chance.randint(0, 23 - begin), chance.randint(1, 5 - left))
        region = Box((begin, left), size)
        assert torch.equal(drawn(shape, region), whole[region.slices_in(Box((0, 0), (23, 5)))])
    line = drawn(torch.Size((100,)), Box((0,), (100,)))
    assert torch.equal(drawn(torch.Size((100,)), Box((30,), (41,))), line[30:71])


def test_a_folder_describes_any_causal_model(tmp_path: Path, world: World) -> None:
    path = str(folder(tmp_path, "gpt2", "GPT2LMHeadModel", **GPT2))
    network = built(world, model={"path": path})
    tokens = torch.arange(18).reshape(2, 9)
    assert network.settings.model_type == "gpt2" and len(decoder_blocks(network.unwrapped)) == 2
    loss = mean(network.passes.forward_backward(tokens))
    assert loss == pytest.approx(float(torch.log(torch.tensor(300.0))), rel=0.02)
    assert all(p.grad is not None for p in network.unwrapped.parameters())


def test_tied_embeddings_are_one_parameter(world: World) -> None:
    network = built(world, model={"tie_embeddings": True})
    weight = network.unwrapped.get_parameter
    assert weight("lm_head.weight") is weight("model.embed_tokens.weight")
    apart = built(world)
    assert network.parameters == apart.parameters - 264 * 16
    assert len(weights_of(network)) == len(weights_of(apart)) - 1


def test_weights_that_do_not_fit_are_one_line(tmp_path: Path, world: World) -> None:
    (tmp_path / "config.json").write_text(json.dumps(model_settings(SMALL, 8).to_dict()))
    asked = {"path": str(tmp_path), "weights": "safetensors"}
    with pytest.raises(ConfigError, match=r"must be a folder with model\.safetensors or") as none:
        built(world, model=asked)
    wrong = weights_of(built(world))
    wrong["lm_head.weight"] = wrong["lm_head.weight"][:, :3].contiguous()
    del wrong["model.norm.weight"]
    save_file(wrong, tmp_path / "model.safetensors")
    with pytest.raises(ConfigError, match=r"holds no model\.norm\.weight; must be") as two:
        built(world, model=asked)
    assert len(none.value.lines) == len(two.value.lines) == 1


MISTAKES = {
    "no folder": (None, "config.json: No such file"),
    "unknown type": (("sphinx", "SphinxForCausalLM", {}), "names SphinxForCausalLM of model type"),
    "few positions": (
        ("gpt2", "GPT2LMHeadModel", {**GPT2, "n_positions": 4}),
        "at most 4, the positions",
    ),
    "small vocabulary": (
        ("gpt2", "GPT2LMHeadModel", {**GPT2, "vocab_size": 9}),
        "must be at least 257",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_folder_that_cannot_be_trained_is_one_line(
    name: str, tmp_path: Path, world: World
) -> None:
    described, line = MISTAKES[name]
    path = tmp_path / "model"
    if described:
        kind, architecture, values = described
        folder(path, kind, architecture, **values)
    with pytest.raises(ConfigError, match=line) as caught:
        built(world, model={"path": str(path)})
    (mistake,) = caught.value.lines
    assert "\n" not in mistake and "must be" in mistake


def test_what_cannot_be_drawn_in_parts_is_refused() -> None:
    with initialization.InitRecorder() as recipes, torch.device("meta"):
        model = torch.nn.Module()
        model.weight = torch.nn.Parameter(torch.empty(4, 4))
        torch.nn.init.normal_(model.weight)
        with torch.no_grad():
            model.weight.mul_(2)
    with pytest.raises(ConfigError, match="weight is filled by aten::mul_, which cannot be drawn"):
        recipes.ops_for(model)


def test_stages_together_are_the_model_and_keep_its_names(world: World) -> None:
    tokens = torch.arange(18).reshape(2, 9)
    whole = built(world)
    expected = mean_loss(whole.unwrapped, tokens).item()
    names: list[str] = []
    hidden: Any = tokens[:, :-1]
    for number in range(2):
        model = built(world).unwrapped
        keep_stage(model, Stage(number, 2))
        names += [name for name, _ in model.named_parameters()]
        hidden = model(hidden)
    assert sorted(names) == sorted(weights_of(whole))
    loss = torch.nn.functional.cross_entropy(hidden.flatten(0, 1), tokens[:, 1:].flatten())
    assert loss.item() == expected


def test_blocks_are_spread_evenly_over_stages() -> None:
    for layers in range(3, 9):
        blocks = [list(Stage(number, 3).blocks(layers)) for number in range(3)]
        assert [number for stage in blocks for number in stage] == list(range(layers))
        assert max(map(len, blocks)) - min(map(len, blocks)) <= 1


def test_recomputing_blocks_gives_the_same_bits_in_less_memory(world: World) -> None:
    tokens, results = torch.arange(18).reshape(2, 9), []
    for recompute in (False, True):
        network = built(world, blocks={"recompute": recompute})
        kept = 0

        def count(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal kept
            kept += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            loss = mean(network.passes.forward_backward(tokens))
        gradients = [p.grad for p in network.unwrapped.parameters() if p.grad is not None]
        results.append((loss, gradients, kept))
    (loss, gradients, kept), (loss_again, gradients_again, kept_again) = results
    assert loss == loss_again and kept_again < kept
    assert all(torch.equal(a, b) for a, b in zip(gradients, gradients_again, strict=True))


def test_bfloat16_computes_less_exactly_and_keeps_float32_weights(world: World) -> None:
    tokens = torch.arange(18).reshape(2, 9)
    exact = mean(built(world).passes.forward_backward(tokens))
    network = built(world, precision={"compute": "bfloat16"})
    loss = mean(network.passes.forward_backward(tokens))
    assert loss != exact and loss == pytest.approx(exact, rel=1e-2)
    assert {p.dtype for p in network.unwrapped.parameters()} == {torch.float32}
    assert {p.grad.dtype for p in network.unwrapped.parameters() if p.grad is not None} == {
        torch.float32
    }
