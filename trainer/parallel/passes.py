"""Forward and backward passes of this rank over micro-batches.

B samples of S + 1 tokens: the first S are the input, the last S the targets; V is the vocabulary.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch.nn.parallel import DistributedDataParallel


class Passes(Protocol):
    """Forward and backward passes. Ranks of one data share pass the same samples."""

    def forward_backward(
        self, tokens_BS1: torch.Tensor, loss_scale: float | None = None
    ) -> torch.Tensor:
        """Accumulate gradients of the mean loss; return its parts per micro-batch, shape [M].

        They sum to the mean in nats per token, or to 0 on pipeline stages without the loss. They
        are on the device: reading them synchronizes. `loss_scale`: a power of two by which gradients
        are multiplied, not the result.
        """

    def evaluation_loss(self, tokens_BS1: torch.Tensor, wanted: int) -> float:
        """Return the mean loss of the first `wanted` samples without gradients; the rest is padding."""


class FullModelPasses:
    """Every rank runs all blocks: DDP, FSDP2 and tensor parallelism."""

    def __init__(
        self,
        model: torch.nn.Module,
        micro_samples: int,
        autocast: torch.dtype | None,
        *,
        sharded: bool = False,
    ) -> None:
        """Pass over `model`.

        `autocast`: compute type for models without FSDP mixed precision; None disables it. `sharded`: whether
        its ranks must evaluate together, because they gather its parameters.
        """
        self._sharded = sharded
        self._model = model
        self._micro_samples = micro_samples
        self._autocast = autocast

    def forward_backward(
        self, tokens_BS1: torch.Tensor, loss_scale: float | None = None
    ) -> torch.Tensor:
        micros = torch.split(tokens_BS1, self._micro_samples)
        parts = []
        for number, micro_BS1 in enumerate(micros, start=1):
            with self._accumulating(last=number == len(micros)):
                with self._computing(tokens_BS1.device):
                    loss = mean_loss(self._model, micro_BS1)
                    if len(micros) > 1:
                        loss = loss / len(micros)
                scaled = loss if loss_scale is None else loss * loss_scale
                scaled.backward()  # type: ignore[no-untyped-call]
            parts.append(loss.detach())
        return torch.stack(parts)

    @torch.no_grad()
    def evaluation_loss(self, tokens_BS1: torch.Tensor, wanted: int) -> float:
        model, together = self._model, self._sharded
        if isinstance(model, DistributedDataParallel):
            model = model.module
        if not wanted and not together:
            return 0.0
        rows_BS1 = tokens_BS1 if together else tokens_BS1[:wanted]
        with self._computing(tokens_BS1.device):
            logits_BSV = compute_logits(model, rows_BS1)[:wanted]
            return float(cross_entropy(logits_BSV, rows_BS1[:wanted])) if wanted else 0.0

    def _accumulating(self, *, last: bool) -> AbstractContextManager[None]:
        """Reduce DDP gradients in the last backward pass only; FSDP2 reduces in each, to save memory."""
        if last or not isinstance(self._model, DistributedDataParallel):
            return nullcontext()
        return self._model.no_sync()

    def _computing(self, device: torch.device) -> AbstractContextManager[None]:
        if self._autocast is None:
            return nullcontext()
        context: AbstractContextManager[None] = torch.autocast(device.type, self._autocast)
        return context


def mean_loss(model: torch.nn.Module, tokens_BS1: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy over all next-token predictions in nats, a scalar."""
    return cross_entropy(compute_logits(model, tokens_BS1), tokens_BS1)


def compute_logits(model: torch.nn.Module, tokens_BS1: torch.Tensor) -> torch.Tensor:
    """Return next-token logits, shape [B, S, V]."""
    found = model(input_ids=tokens_BS1[:, :-1])
    result: torch.Tensor = found if isinstance(found, torch.Tensor) else found.logits
    return result


def cross_entropy(logits_BSV: torch.Tensor, tokens_BS1: torch.Tensor) -> torch.Tensor:
    """Return the mean over all predictions in nats, computed in float32, a scalar."""
    return torch.nn.functional.cross_entropy(
        logits_BSV.flatten(0, 1).float(), tokens_BS1[:, 1:].flatten(), reduction="mean"
    )
