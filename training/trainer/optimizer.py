"""The optimizer of a run."""

from __future__ import annotations

import torch
from torch.distributed.tensor import DTensor

from training.checkpoint import contents
from training.trainer.config import TrainerConfig


def adamw(network: torch.nn.Module, config: TrainerConfig) -> torch.optim.Optimizer:
    """AdamW over the network, its state made already; weight decay on matrices only."""
    settings = config.optimizer
    groups: dict[tuple[bool, object], list[torch.nn.Parameter]] = {}
    for parameter in network.parameters():
        # One fused update takes tensors of one mesh only.
        mesh = parameter.device_mesh if isinstance(parameter, DTensor) else None
        groups.setdefault((parameter.ndim >= 2, mesh), []).append(parameter)
    optimizer = torch.optim.AdamW(
        [
            {"params": group, "weight_decay": settings.weight_decay if matrices else 0.0}
            for (matrices, _), group in groups.items()
        ],
        lr=settings.learning_rate,
        betas=(settings.beta1, settings.beta2),
        eps=settings.epsilon,
        fused=True,
    )
    contents.prepare_optimizer(network, optimizer)
    return optimizer
