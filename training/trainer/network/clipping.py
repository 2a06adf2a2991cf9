"""The gradients' global norm, whatever the parameters are divided over."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist

from training.trainer.network.regions import cut, local


@torch.no_grad()
def clip_divided(
    parameters: Iterable[torch.nn.Parameter], most: float, ranks_per_stage: int
) -> torch.Tensor:
    """Scale gradients so that their 2-norm over the whole model is at most `most`; the norm.

    Every rank adds the squares of what it holds, divided by how many ranks of its pipeline stage
    hold the same; one sum over the world is then the whole model's, on the device and without
    waiting for it.
    """
    parts = [(local(p.grad), cut(p.grad)) for p in parameters if p.grad is not None]
    gradients = [gradient for gradient, _ in parts]
    norms = torch.stack(torch._foreach_norm(gradients)).double()
    owned = torch.tensor([pieces / ranks_per_stage for _, pieces in parts], device=norms.device)
    squares = (norms.square() * owned).sum()
    dist.all_reduce(squares)
    norm = squares.sqrt().float()
    torch._foreach_mul_(gradients, (most / (norm + 1e-6)).clamp(max=1.0))
    return norm
