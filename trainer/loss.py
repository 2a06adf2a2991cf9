"""The loss of a causal language model.

B samples of S + 1 tokens: the first S are the input, the last S the targets; V is the vocabulary.
"""

from __future__ import annotations

import torch


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
