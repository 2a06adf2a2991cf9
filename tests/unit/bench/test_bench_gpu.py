"""The GPU benchmark: its note without a GPU, and which steps count."""

from __future__ import annotations

import json

import pytest
import torch

from bench.trainer import gpu
from bench.trainer.gpu import Result, Shape
from bench.trainer.live_runs import ROOT


def notify(_what: str, _of: int, _done: int) -> None:
    return None


def step(number: int, seconds: float, **more: float | None) -> str:
    values = {"mfu": None, "loader_time_s": 0.0, "collective_time_s": 0.0, "checkpoint_stall_s": 0}
    return json.dumps({"step": number, "step_time_s": seconds, **values, **more})


def test_without_a_gpu_the_section_is_marked_untested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    text, good = gpu.run(gpu.SIZES["full"], 1, notify)
    assert good and text.startswith("Not run: this machine has no GPU.")


def test_warmup_steps_are_excluded_but_their_checkpoint_stalls_count() -> None:
    slow = [step(n, 9.0, checkpoint_stall_s=0.5 if n == 3 else 0.0) for n in range(1, 11)]
    fast = [
        step(n, 0.1, mfu=0.4, loader_time_s=0.002, collective_time_s=0.001) for n in range(11, 31)
    ]
    found = gpu.parse_metrics("\n".join([*slow, *fast]))
    assert found.host_s == pytest.approx(0.003)
    assert found == Result(step_s=0.1, mfu=0.4, host_s=found.host_s, stall_s=0.5)


def test_each_loop_is_compared_with_the_bare_loop_of_its_round() -> None:
    shape = Shape(layers=2, hidden=64, heads=2, sequence=100, samples=3, steps=30)
    found = {
        "bare": [Result(step_s=1.0), Result(step_s=2.0)],
        "trainer, DDP": [Result(step_s=1.1, stall_s=0.02), Result(step_s=2.2, stall_s=0.02)],
    }
    row = gpu.table(found, shape, ranks=2).splitlines()[-1]
    assert "| 1.100 (1.100 to 1.100) |" in row and "| 20.0 |" in row


def test_sharding_is_over_all_ranks() -> None:
    shape = Shape(layers=2, hidden=64, heads=2, sequence=64, samples=2, steps=24)
    more = gpu.ARMS["trainer, FSDP2, compiled"]
    made = gpu._settings(shape, ROOT, 1, 8, "cuda", more)
    assert made["parallel"] == {"shard": 8} and made["blocks"] == {"compile": True}
    assert made["batch"]["global_samples"] == 16
