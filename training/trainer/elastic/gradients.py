"""This rank's part of the gradients as one flat tensor, and the share of it that the rank exchanges.

Ranks that hold copies of the same part (data parallelism without sharding, or HSDP) divide it: each exchanges one
share with its counterparts in the other groups, and the copies gather the sums afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.distributed as dist

from training.trainer.parallel.build import Network
from trainyard.tensors.local_tensors import is_sharded, local_data


class LocalGradients:
    """Takes the gradients of backward passes, and gives them back summed; for two steps in turn."""

    def __init__(self, network: Network, device: torch.device) -> None:
        self._parameters = [p for p in network.unwrapped.parameters() if p.requires_grad]
        sizes = [local_data(parameter).numel() for parameter in self._parameters]
        self._copies = network.copies
        self._reduce = self._copies is not None and not network.norm
        """Whether the copies have computed with different samples, and are not summed yet."""
        count = dist.get_world_size(self._copies) if self._copies else 1
        number = dist.get_rank(self._copies) if self._copies else 0
        piece = -(-sum(sizes) // count)
        self._share = slice(number * piece, (number + 1) * piece)
        self._padding = torch.zeros(count * piece - sum(sizes), device=device)
        self._count = count
        self.length = piece + 1
        """Elements of a share: gradients, and the loss."""
        self.shares = [torch.zeros(self.length, device=device) for _ in range(2)]
        self._whole = [
            torch.zeros(count * piece, device=device) if self._copies else share[:-1]
            for share in self.shares
        ]
        self._gradients = [self._as_gradients(whole, sizes) for whole in self._whole]

    def take(self, loss: torch.Tensor) -> list[torch.Tensor]:
        """Take the gradients away from the parameters; return this rank's share of them, and `loss`."""
        found = [
            local_data(p.grad if p.grad is not None else torch.zeros_like(p))
            for p in self._parameters
        ]
        for parameter in self._parameters:
            parameter.grad = None
        if self._copies is None:
            return [*found, loss]
        flat = torch.cat([*(tensor.reshape(-1) for tensor in found), self._padding])
        return [self._reduced(flat) if self._reduce else flat[self._share].clone(), loss]

    def gather(self, number: int) -> None:
        """Gather the shares of a sum, and set the parameters' gradients; all copies do it at the same time."""
        if self._copies:
            dist.all_gather_into_tensor(
                self._whole[number], self.shares[number][:-1], group=self._copies
            )
        for parameter, gradient in zip(self._parameters, self._gradients[number], strict=True):
            parameter.grad = gradient

    def keep_share(self, number: int) -> None:
        """Copy this rank's share of the gradients, which were clipped, into `shares`."""
        if self._copies:
            self.shares[number][:-1].copy_(self._whole[number][self._share])

    def _reduced(self, flat: torch.Tensor) -> torch.Tensor:
        """Return this rank's share of the mean over the copies."""
        if flat.device.type == "cpu":  # gloo's reduce_scatter is an all_reduce and a copy
            dist.all_reduce(flat, group=self._copies)
            return flat[self._share] / self._count
        share = flat.new_empty(self.length - 1)
        dist.reduce_scatter_tensor(share, flat, group=self._copies)
        return share.div_(self._count)

    def _as_gradients(self, whole: torch.Tensor, sizes: Sequence[int]) -> list[torch.Tensor]:
        """Return views of a flat tensor in the form of the parameters' gradients."""
        parts = torch.split(whole[: sum(sizes)], list(sizes))
        found = []
        for part, parameter in zip(parts, self._parameters, strict=True):
            view = part.view_as(local_data(parameter))
            found.append(_like(parameter, view) if is_sharded(parameter) else view)
        return found


def _like(parameter: torch.Tensor, local: torch.Tensor) -> torch.Tensor:
    """Return a DTensor with these elements on this rank, sharded as the parameter is."""
    from torch.distributed.tensor import DTensor

    sharded = cast(Any, parameter)
    return DTensor.from_local(
        local,
        sharded.device_mesh,
        sharded.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )
