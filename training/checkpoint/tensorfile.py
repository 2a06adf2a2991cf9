"""Small safetensors files, whole in memory."""

from __future__ import annotations

import safetensors.torch
import torch
from safetensors import SafetensorError

from training.checkpoint.manifest import CorruptCheckpoint


def parse(name: str, content: bytes) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file. Raises CorruptCheckpoint; runs no code of the file."""
    try:
        return safetensors.torch.load(content)
    except (SafetensorError, ValueError, KeyError) as error:
        raise CorruptCheckpoint(f"{name}: not safetensors: {error}") from None
