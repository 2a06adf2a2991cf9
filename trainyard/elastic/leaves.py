"""What a logical worker contributes to a step: gradients, changes of buffers, its loss."""

from __future__ import annotations

import random
import sys

import torch
from torch.distributed.tensor import DTensor


def local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


class Leaves:
    """Takes a worker's contribution from the model, and puts the mean over all workers back.

    Floating point is summed in 32 bits, or in 64 if any parameter has 64.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        kept = model.state_dict(keep_vars=True)
        self._buffers = [b for n, b in model.named_buffers() if n in kept and b.numel()]
        self._before = [local(buffer).clone() for buffer in self._buffers]
        wide = any(p.dtype == torch.float64 for p in self._parameters)
        self.dtype = torch.float64 if wide else torch.float32
        self.device = local(self._parameters[0]).device if self._parameters else torch.device("cpu")
        self.length = 1 + sum(local(t).numel() for t in [*self._parameters, *self._buffers])
        """Numbers in a contribution; the last one is the loss."""

    @torch.no_grad()
    def begin(self) -> None:
        """Remember the buffers, such as running statistics: each worker begins with those of the last step."""
        for buffer, before in zip(self._buffers, self._before, strict=True):
            before.copy_(local(buffer))

    @torch.no_grad()
    def take(self, loss: torch.Tensor | None) -> list[torch.Tensor]:
        """Return a worker's contribution; parameters have no gradients afterwards, and buffers are as before."""
        found = []
        for parameter in self._parameters:
            part = local(parameter)
            gradient = parameter.grad
            found.append(torch.zeros_like(part) if gradient is None else local(gradient))
            parameter.grad = None
        for buffer, before in zip(self._buffers, self._before, strict=True):
            part = local(buffer)
            # Not a difference of what is equal: a mask may have infinities.
            found.append(
                torch.where(part == before, 0.0, part.to(self.dtype) - before.to(self.dtype))
            )
            part.copy_(before)
        found.append(torch.zeros(1) if loss is None else loss.detach().reshape(1))
        return [tensor.to(self.device, self.dtype) for tensor in found]

    @torch.no_grad()
    def give(self, total: torch.Tensor, workers: int) -> None:
        """Set gradients and buffers from the sum of all workers' contributions."""
        first = 0

        def mean_of(like: torch.Tensor) -> torch.Tensor:
            nonlocal first
            part = total[first : first + like.numel()].view(like.shape)
            first += like.numel()
            return (part / workers).to(like.device)

        for parameter in self._parameters:
            part = local(parameter)
            mean = mean_of(part).to(part.dtype)
            if isinstance(parameter, DTensor):
                mean = DTensor.from_local(
                    mean,
                    parameter.device_mesh,
                    parameter.placements,
                    run_check=False,
                    shape=parameter.shape,
                    stride=parameter.stride(),
                )
            parameter.grad = mean
        for buffer, before in zip(self._buffers, self._before, strict=True):
            change = mean_of(before)
            if not before.is_floating_point():
                change = change.round()
            local(buffer).copy_(before + change.to(before.dtype))


def seed_all(*numbers: int) -> None:
    """Seed the generators of torch, numpy and Python in this process, in the same way wherever it is called."""
    mixed = 0
    for number in numbers:
        mixed = (mixed * 0x9E3779B97F4A7C15 + number + 1) % (1 << 63)
    # Not torch.manual_seed: before CUDA is up it records the call with its stack, 3 ms each time.
    torch.default_generator.manual_seed(mixed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(mixed)
    random.seed(mixed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(mixed % (1 << 32))
