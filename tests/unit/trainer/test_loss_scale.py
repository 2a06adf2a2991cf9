"""The loss scale moves as GradScaler's does."""

from __future__ import annotations

import random

import torch

from trainer.loss_scale import FIRST, GROWTH_STEPS, scale_after


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
