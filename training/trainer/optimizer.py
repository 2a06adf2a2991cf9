"""AdamW and the learning-rate schedule."""

from __future__ import annotations

import math

import torch

from training.checkpoint import contents
from training.trainer.config import ScheduleConfig, TrainerConfig


def adamw(network: torch.nn.Module, config: TrainerConfig) -> torch.optim.Optimizer:
    """Return AdamW with initialized state and weight decay on matrices only."""
    settings = config.optimizer
    matrices = [p for p in network.parameters() if p.ndim >= 2]
    others = [p for p in network.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": settings.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=settings.learning_rate,
        betas=(settings.beta1, settings.beta2),
        eps=settings.epsilon,
        fused=True,
    )
    contents.prepare_optimizer(network, optimizer)
    return optimizer


def learning_rate(schedule: ScheduleConfig, peak: float, step: int, steps: int) -> float:
    """Return the learning rate of step 1 .. `steps`: linear warm-up to `peak`, then the decay.

    The last step gets `final_fraction` of the peak. A pure function: there is no state to save.
    """
    if step <= schedule.warmup_steps:
        return peak * step / schedule.warmup_steps
    if schedule.kind == "constant":
        return peak
    done = (step - schedule.warmup_steps) / (steps - schedule.warmup_steps)
    left = 1 - done if schedule.kind == "linear" else (1 + math.cos(math.pi * done)) / 2
    return peak * (schedule.final_fraction + (1 - schedule.final_fraction) * left)
