"""State of a given size, as a model and its optimizer have it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch

from training.checkpoint import contents

TENSORS: Final = 146
"""Parameters; AdamW holds three more tensors for each."""


@dataclass(frozen=True, kw_only=True)
class State:
    """A model and its optimizer, both on the CPU, every byte touched."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    bytes: int

    def tensors(self) -> dict[str, dict[str, torch.Tensor]]:
        """Model and optimizer state by name."""
        found = contents.tensors(self.model, self.optimizer)
        return {group: dict(tensors) for group, tensors in found.items()}

    def digest(self) -> list[int]:
        """Differs when a bit does."""
        flat = [t for group in self.tensors().values() for t in group.values()]
        return [int(tensor.detach().reshape(-1).view(torch.int32).sum()) for tensor in flat]

    @torch.no_grad()
    def erase(self) -> None:
        """All zeros: what is loaded afterwards was really loaded."""
        for group in self.tensors().values():
            for tensor in group.values():
                tensor.zero_()


def make_state(megabytes: int, seed: int) -> State:
    """Random parameters of unequal size, as in a small transformer; 12 bytes for each of them."""
    torch.manual_seed(seed)
    unit = megabytes * 1_000_000 // 12 // (TENSORS * 2)
    sizes = [unit // 2 if number % 3 == 0 else unit * 11 // 4 for number in range(TENSORS)]
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(size)) for size in sizes])
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    contents.prepare_optimizer(model, optimizer)
    total = sum(
        tensor.numel() * tensor.element_size()
        for group in contents.tensors(model, optimizer).values()
        for tensor in group.values()
    )
    return State(model=model, optimizer=optimizer, bytes=total)
