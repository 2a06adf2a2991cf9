"""The loss scale moves as GradScaler's does."""

from __future__ import annotations

import dataclasses
import random

import torch

from trainer import config, loss_scale
from trainer.checkpoint.contents import Progress, progress_of
from trainer.loss_scale import FIRST, GROWTH_STEPS, scale_after

PROGRESS = Progress(
    step=7,
    samples=56,
    windows=100,
    seed=1,
    evaluated_step=0,
    evaluation_loss=None,
    dataset_version="v",
    model={},
    tokens={},
)


def test_it_changes_as_gradscalers_does() -> None:
    chance = random.Random(5)
    scale, steps = FIRST, 0
    theirs, tracker = torch.tensor(FIRST), torch.zeros((), dtype=torch.int32)
    for _ in range(20 * GROWTH_STEPS):
        finite = chance.random() > 0.5 / GROWTH_STEPS
        scale, steps = scale_after(scale, steps, finite=finite)
        found_inf = torch.tensor(float(not finite))
        torch._amp_update_scale_(theirs, tracker, found_inf, 2.0, 0.5, GROWTH_STEPS)
        assert (scale, steps) == (theirs.item(), tracker.item())


def test_only_float16_has_one() -> None:
    named = {
        form: config.parse({"steps": 30, "data": {"path": "d"}, "precision": {"compute": form}})
        for form in ("float32", "bfloat16", "float16")
    }
    found = {form: loss_scale.scale_of(one, PROGRESS) for form, one in named.items()}
    assert found == {"float32": None, "bfloat16": None, "float16": FIRST}


def test_a_checkpoint_has_it() -> None:
    scaled = dataclasses.replace(PROGRESS, loss_scale=2.0**12, steps_at_scale=3)
    assert progress_of({"progress": dataclasses.asdict(scaled)}) == scaled
    assert progress_of({"progress": {"step": 3}}) is None
