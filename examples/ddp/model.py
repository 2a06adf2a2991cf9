"""A byte-level language model, and batches from the source of Python's standard library."""

import os
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional


class ByteModel(nn.Module):
    """A decoder over bytes: one transformer layer of width 64."""

    def __init__(self, width: int = 64, length: int = 64, dropout: float = 0.0) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, width)
        self.positions = nn.Embedding(length, width)
        self.layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout, batch_first=True, norm_first=True
        )
        self.head = nn.Linear(width, 256)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy of `targets` (batch, length)."""
        positions = torch.arange(inputs.shape[1], device=inputs.device)
        hidden = self.bytes(inputs) + self.positions(positions)
        logits = self.head(self.layer(hidden, src_mask=self.mask, is_causal=True))
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def read_text() -> torch.Tensor:
    """Return the bytes of the standard library's top-level modules (about 5 MB)."""
    files = sorted(Path(os.__file__).parent.glob("*.py"))
    return torch.frombuffer(bytearray(b"".join(f.read_bytes() for f in files)), dtype=torch.uint8)


def batch(
    text: torch.Tensor, step: int, rank: int, world: int, device: torch.device, length: int = 64
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return this rank's inputs and targets of a step: 8 samples, the same whenever the step is repeated."""
    generator = torch.Generator().manual_seed(step * world + rank)
    starts = torch.randint(len(text) - length - 1, (8,), generator=generator)
    samples = torch.stack([text[s : s + length + 1] for s in starts.tolist()]).long().to(device)
    return samples[:, :-1], samples[:, 1:]
