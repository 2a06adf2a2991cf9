"""A loss or gradient that is not finite ends the run before it reaches the weights."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.trainer.elastic_groups import start_run
from tests.trainer.ranks import Hook, RunFiles
from tests.trainer.runs import INTERVAL, Trainer, assert_same

STEP = 2 * INTERVAL + 2
"""Not the first step after a checkpoint, nor the last before one."""


def nan_gradient(*ranks: int, step: int = STEP) -> Hook:
    """A hook: in one step these ranks have a gradient with NaN, and every rank a finite loss."""

    def hook(rank: int) -> None:
        from trainer.parallel.build import Network

        plain, calls = Network.clip, 0

        def clip(self: Network, *arguments: Any) -> object:
            nonlocal calls
            calls += 1
            if calls == step and rank in ranks:
                gradient = next(p.grad for p in self.module.parameters() if p.grad is not None)
                getattr(gradient, "_local_tensor", gradient).view(-1)[0] = math.nan
            return plain(self, *arguments)

        pytest.MonkeyPatch().setattr(Network, "clip", clip)

    return hook


def test_a_loss_that_is_not_finite_ends_the_run_with_a_line(trainer: Trainer) -> None:
    ranks = trainer.start("run", "optimizer.learning_rate=1e30", "optimizer.clip_norm=1e30")
    assert ranks.wait() == [1, 1]
    assert " is nan; lower optimizer.learning_rate" in ranks.output()
    assert trainer.files("run").events("failed")


@pytest.mark.parametrize("settings", [(), ("parallel.shard=2",)], ids=["replicas", "shards"])
def test_a_gradient_of_one_rank_that_is_not_finite_changes_no_weight(
    trainer: Trainer, control: RunFiles, settings: tuple[str, ...]
) -> None:
    if settings:
        assert trainer.run("control", *settings) == [0, 0]
        control = trainer.files("control")
    ranks = trainer.start("run", *settings, hook=nan_gradient(1))
    assert ranks.wait() == [1, 1], ranks.output()
    files = trainer.files("run")
    assert f"step {STEP}: gradient norm is nan; lower" in ranks.output()
    assert files.losses() == control.losses()[: STEP - 1]
    assert trainer.run("run", *settings) == [0, 0]
    assert all(event["from_step"] <= 2 * INTERVAL for event in files.events("resumed"))
    assert_same(files, control)


def test_the_same_in_an_elastic_run(trainer: Trainer) -> None:
    run = start_run(trainer, "run", 1, hook=nan_gradient(0))
    assert run.wait() == [1], run.output()
    assert f"step {STEP}: gradient norm is nan; lower" in run.output()
    assert len(run.files.losses()) == STEP - 1
