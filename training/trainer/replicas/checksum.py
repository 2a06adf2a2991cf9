"""Checksums of tensors, computed where the tensors are.

The sum of a tensor's bits as 64-bit numbers, modulo 2**64: it does not depend on the order of the sum, and no
single flipped bit can leave it as it was. It is not a hash against an adversary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import torch

_WORDS: Final = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}
BLOCK: Final = 4096
"""Elements of a block, the unit in which a difference is searched."""

SUMMARY_BYTES: Final = 16


def checksums(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return one int64 per tensor, on the CPU; reading them waits for the device."""
    if not tensors:
        return torch.zeros(0, dtype=torch.int64)
    return torch.stack([checksum(tensor) for tensor in tensors]).cpu()


def checksum(tensor: torch.Tensor) -> torch.Tensor:
    """Return the checksum of a tensor as an int64 on its device."""
    flat = tensor.detach().reshape(-1)
    size = flat.element_size()
    if flat.numel() * size % 8 or not flat.numel():
        return flat.view(_WORDS[size]).sum(dtype=torch.int64)
    if flat.storage_offset() * size % 8:
        flat = flat.clone()
    return flat.view(torch.int64).sum()


def block_checksums(tensor: torch.Tensor) -> torch.Tensor:
    """Return the checksums of a tensor's blocks, the last one shorter, on the CPU."""
    flat = tensor.detach().reshape(-1)
    words = flat.view(_WORDS[flat.element_size()])
    whole = words.numel() // BLOCK * BLOCK
    found = [words[:whole].view(-1, BLOCK).sum(1, dtype=torch.int64)]
    if whole < words.numel():
        found.append(words[whole:].sum(dtype=torch.int64).reshape(1))
    return torch.cat(found).cpu()


def summary(found: torch.Tensor) -> bytes:
    """Return `SUMMARY_BYTES` for all checksums together."""
    return hashlib.blake2b(found.numpy().tobytes(), digest_size=SUMMARY_BYTES).digest()
