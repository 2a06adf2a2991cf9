"""AdamW."""

from __future__ import annotations

import torch

from trainer import eager
from trainer.checkpoint import contents
from trainer.config.settings import TrainerConfig


def adamw(network: torch.nn.Module, config: TrainerConfig) -> torch.optim.Optimizer:
    """Return AdamW with initialized state and weight decay on matrices only."""
    settings = config.optimizer
    matrices = [p for p in network.parameters() if p.ndim >= 2]
    others = [p for p in network.parameters() if p.ndim < 2]
    with eager.without_compiler():
        optimizer = eager.AdamW(
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
