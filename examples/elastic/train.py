"""Train a byte-level language model by replica groups that come and go; every loss is that of an undisturbed run.

Lines that make a plain loop elastic are marked with +.
"""

import argparse
import os
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import trainyard
from trainyard import elastic  # +

LENGTH, SAMPLES, WORKERS = 64, 2, 8

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--save-every", type=int, default=20)
args = parser.parse_args()

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
files = sorted(Path(os.__file__).parent.glob("*.py"))
text = torch.frombuffer(bytearray(b"".join(map(Path.read_bytes, files))), dtype=torch.uint8)


class Model(nn.Module):
    """One transformer layer over bytes, with dropout and batch normalisation."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.bytes, self.norm = nn.Embedding(256, width), nn.BatchNorm1d(LENGTH)
        self.layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.1, batch_first=True)
        self.head = nn.Linear(width, 256)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return logits (batch, length, byte)."""
        hidden = self.layer(self.norm(self.bytes(inputs)), src_mask=self.mask, is_causal=True)
        return self.head(hidden)


def batch(step: int, worker: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and targets: the same whenever the step is repeated."""
    generator = torch.Generator().manual_seed(step * WORKERS + worker)
    starts = torch.randint(len(text) - LENGTH - 1, (SAMPLES,), generator=generator)
    samples = torch.stack([text[s : s + LENGTH + 1] for s in starts.tolist()]).long().to(device)
    return samples[:, :-1], samples[:, 1:]


model = Model().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
run = elastic.join(  # +
    model, optimizer, schedule=schedule, workers=WORKERS, save_every=args.save_every
)
for step in run.steps(args.steps):  # + instead of: for step in range(args.steps)
    with step:  # +
        for worker in step.workers():  # +
            inputs, targets = batch(step.number, worker)
            loss = functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
            loss.backward()
            step.add(loss)  # +
        loss = step.reduce()  # +
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        print(f"step {step.number} loss {loss!r} groups {run.groups}", flush=True)
        if run.leads:
            trainyard.log(step=step.number, loss=loss, tokens=WORKERS * SAMPLES * LENGTH)
