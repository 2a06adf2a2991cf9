"""The optimizer: its settings, parameter groups and state. Another one is a change of this file only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer.section import Count, Positive, PositiveOrZero, Section, Share

if TYPE_CHECKING:  # the configuration is read without torch
    import torch


class OptimizerConfig(Section):
    """AdamW. Weight decay applies to matrices only, not to norms."""

    learning_rate: Positive = 1e-3
    """Peak learning rate."""
    scale_learning_rate: Count | None = None
    """Samples per step for which `learning_rate` was tuned: the peak is scaled linearly to
    `batch.global_samples`; null: not scaled."""
    beta1: Share = 0.9
    """Decay rate of the first moment."""
    beta2: Share = 0.95
    """Decay rate of the second moment."""
    epsilon: Positive = 1e-8
    """Term added to the denominator for numerical stability."""
    weight_decay: PositiveOrZero = 0.1
    """Decoupled weight decay coefficient."""
    clip_norm: Positive = 1.0
    """Gradients are scaled down to this global 2-norm."""


def make_optimizer(network: torch.nn.Module, settings: OptimizerConfig) -> torch.optim.Optimizer:
    """Return the optimizer of this rank's parameters, with the state that its first step would create."""
    from trainer import eager

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
    create_state(optimizer)
    return optimizer


def create_state(optimizer: torch.optim.Optimizer) -> None:
    """Create the state that AdamW creates in its first step, so that it can be loaded before."""
    import torch

    for parameter in (one for group in optimizer.param_groups for one in group["params"]):
        state = optimizer.state[parameter]
        state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
        state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
