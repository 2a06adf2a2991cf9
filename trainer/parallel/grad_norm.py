"""Global gradient norm of sharded parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
import torch.distributed as dist

from trainyard.tensors.local_tensors import is_sharded, local_data


class ShardedGradNorm:
    """Clips gradients that are sharded over the ranks of a mesh.

    Every rank sums the squares of what it holds, divided by how many ranks of its pipeline stage
    hold the same; one all-reduce gives the norm of the whole model.
    """

    def __init__(
        self, parameters: Iterable[torch.nn.Parameter], ranks_per_stage: int, device: torch.device
    ) -> None:
        self._parameters = list(parameters)
        parts = [_shards(parameter) / ranks_per_stage for parameter in self._parameters]
        self._parts = torch.tensor(parts, dtype=torch.float64, device=device)

    @torch.no_grad()
    def clip(self, most: float) -> torch.Tensor:
        """Clip the gradients to a 2-norm of `most`; return the norm before, on the device."""
        used = [i for i, parameter in enumerate(self._parameters) if parameter.grad is not None]
        parts = self._parts if len(used) == len(self._parameters) else self._parts[used]
        gradients = [local_data(p.grad) for p in self._parameters if p.grad is not None]
        norms = torch.stack(torch._foreach_norm(gradients)).double()
        squares = (norms.square() * parts).sum()
        dist.all_reduce(squares)
        norm = squares.sqrt().float()
        torch._foreach_mul_(gradients, (most / (norm + 1e-6)).clamp(max=1.0))
        return norm


def _shards(tensor: torch.Tensor) -> int:
    """Return the number of shards of a tensor; 1 if it is not sharded."""
    if not is_sharded(tensor):
        return 1
    sizes = zip(tensor.device_mesh.shape, tensor.placements, strict=True)
    return math.prod(size for size, placement in sizes if not placement.is_replicate())
