"""Tensors and random states come back as they were, without pickle."""

from __future__ import annotations

import gc
import random
from unittest.mock import MagicMock

import numpy as np
import pytest
import safetensors.torch
import torch

from trainer.checkpoint import contents
from trainer.optimizer import create_state
from trainyard.tensors import random_state
from trainyard.tensors.local_tensors import Tensors, local_shards
from trainyard.tensors.plan import make_plan
from trainyard.tensors.staging import Staging

TENSORS = {
    "f32": torch.arange(12, dtype=torch.float32).reshape(3, 4).t(),  # not contiguous
    "f64": torch.tensor(0.1, dtype=torch.float64),
    "bf16": torch.tensor([1.5, -2.25], dtype=torch.bfloat16),
    "f16": torch.tensor([0.5], dtype=torch.float16),
    "i64": torch.tensor([[2**40, -1]]),
    "i32": torch.tensor([7], dtype=torch.int32),
    "u8": torch.arange(5, dtype=torch.uint8),
    "bool": torch.tensor([True, False, True]),
    "empty": torch.zeros(0, 3),
}


def staged(tensors: Tensors) -> tuple[Staging, str]:
    """Staging memory for a checkpoint of one rank, and the name of its only file."""
    plan = make_plan([local_shards({"model": tensors})])
    (file,) = plan.files[0]
    return Staging(plan.files[0], {"model": tensors}, torch.device("cpu")), file.name


def content(staging: Staging, name: str) -> bytes:
    return b"".join(bytes(chunk) for chunk in staging.chunks(name))


def test_staged_tensors_are_a_file_that_the_safetensors_library_reads() -> None:
    staging, name = staged(TENSORS)
    staging.stage({"model": TENSORS})
    assert len(content(staging, name)) == staging.bytes
    loaded = safetensors.torch.load(content(staging, name))
    assert loaded.keys() == TENSORS.keys() - {"empty"}  # the layout alone knows of no elements
    for key, tensor in loaded.items():
        assert TENSORS[key].dtype == tensor.dtype and torch.equal(TENSORS[key], tensor)


def test_staging_memory_is_reused_and_follows_the_tensors() -> None:
    tensor = torch.zeros(4)
    staging, name = staged({"x": tensor})
    address = staging.files[name].data_ptr()
    for value in (1.0, 2.0):
        tensor.fill_(value)
        staging.stage({"model": {"x": tensor}})
        assert torch.equal(safetensors.torch.load(content(staging, name))["x"], tensor)
    assert staging.files[name].data_ptr() == address


@pytest.mark.parametrize("elements", [1, 100, 1000, 10_000, 1_000_000])
def test_staging_memory_begins_on_a_page_so_that_it_can_be_written_around_the_cache(
    elements: int,
) -> None:
    kept = [staged({"x": torch.zeros(elements)}) for _ in range(4)]
    assert {staging.files[name].data_ptr() % 4096 for staging, name in kept} == {0}


class Driver:
    """Stands in for CUDA's: which ranges of the host's memory are pinned."""

    def __init__(self) -> None:
        self.pinned: dict[int, int] = {}

    def cudaHostRegister(self, pointer: int, size: int, _: int) -> int:
        """Pin a range."""
        assert pointer % 4096 == size % 4096 == 0
        self.pinned[pointer] = size
        return 0

    def cudaHostUnregister(self, pointer: int) -> int:
        """End that."""
        del self.pinned[pointer]
        return 0


def test_staging_memory_for_a_gpu_is_pinned_file_by_file_and_takes_no_more_than_the_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Driver()
    for name in ("Stream", "Event", "device"):
        monkeypatch.setattr(torch.cuda, name, MagicMock())
    monkeypatch.setattr(torch.cuda, "cudart", lambda: driver)
    monkeypatch.setattr(torch.cuda, "check_error", lambda result: result)
    tensors = {f"x{number}": torch.zeros(300, 100) for number in range(5)}
    plan = make_plan([local_shards({"model": tensors})], file_bytes=200_000)
    staging = Staging(plan.files[0], {"model": tensors}, torch.device("cuda"))
    assert len(staging.files) == 5
    places = {buffer.data_ptr(): buffer.numel() for buffer in staging.files.values()}
    assert driver.pinned.keys() == places.keys()
    for place, size in places.items():
        assert size <= driver.pinned[place] < size + 4096
    del staging
    gc.collect()
    assert not driver.pinned


def draw() -> list[float]:
    return [random.random(), random.gauss(), np.random.normal(), float(torch.rand(()))]


def test_random_states_continue_where_they_were() -> None:
    random_state.seed_all(5)
    draw()  # leaves half a Gaussian pair in Python and numpy
    states = random_state.capture()
    expected = draw()
    random_state.seed_all(6)
    assert draw() != expected
    random_state.restore(states)
    assert draw() == expected


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4))


def test_saving_before_the_first_step_is_the_state_that_adamw_would_make() -> None:
    prepared, plain = model(), model()
    optimizers = [torch.optim.AdamW(m.parameters(), fused=True) for m in (prepared, plain)]
    create_state(optimizers[0])
    for network, optimizer in zip((prepared, plain), optimizers, strict=True):
        network(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    for name, tensor in contents.optimizer_tensors(plain, optimizers[1]).items():
        assert torch.equal(tensor, contents.optimizer_tensors(prepared, optimizers[0])[name])
    for a, b in zip(prepared.parameters(), plain.parameters(), strict=True):
        assert torch.equal(a, b)


def test_tied_weights_are_stored_once() -> None:
    network = torch.nn.ModuleList([torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)])
    network[1].weight = network[0].weight
    assert sorted(contents.model_tensors(network)) == ["0.bias", "0.weight", "1.bias"]


def test_equal_buffers_that_are_two_are_stored_twice() -> None:
    network = torch.nn.Module()
    network.register_buffer("a", torch.zeros(0))
    network.register_buffer("b", torch.zeros(0))
    assert sorted(contents.model_tensors(network)) == ["a", "b"]
