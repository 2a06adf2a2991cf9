"""Train a byte-level model with components of torchtitan, without a GPU; stop on a notice and resume exactly.

The loop is that of torchtitan's Trainer, which itself requires a GPU: optimizer, scheduler, data loader and
checkpoint manager are torchtitan's.
"""

import argparse
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.utils.data import IterableDataset
from torchtitan.components.dataloader import ParallelAwareDataloader
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw

import trainyard
from trainyard.adapters.torchtitan import NoticeCheckpointManager

LENGTH = 128
"""Bytes of a sample."""


class ByteModel(nn.Module):
    """A decoder over bytes: two layers of width 64."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(64, 256)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return logits (batch, length, 256)."""
        mask = nn.Transformer.generate_square_subsequent_mask(inputs.shape[1])
        return self.head(self.layers(self.bytes(inputs), mask=mask, is_causal=True))


class Samples(IterableDataset, Stateful):
    """The source of Python's standard library; the position of each rank is its state."""

    def __init__(self, rank: int, world: int) -> None:
        files = sorted(Path(os.__file__).parent.glob("*.py"))
        text = bytearray(b"".join(file.read_bytes() for file in files))
        self.text = torch.frombuffer(text, dtype=torch.uint8)
        self.next, self.world = rank, world

    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            start = self.next * LENGTH % (len(self.text) - LENGTH - 1)
            self.next += self.world
            yield self.text[start : start + LENGTH + 1].long()

    def state_dict(self) -> dict[str, int]:
        """Return the position."""
        return {"next": self.next}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Continue at a position."""
        self.next = state_dict["next"]


class TrainState(Stateful):
    """What torchtitan's Trainer saves of itself."""

    step = 0

    def state_dict(self) -> dict[str, int]:
        """Return the step."""
        return {"step": self.step}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Restore the step."""
        self.step = state_dict["step"]


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--save-every", type=int, default=20)
args = parser.parse_args()

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = ByteModel()
fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
optimizer_config = default_adamw(lr=2e-3)
optimizer_config.implementation = "for-loop"  # the default is fused, which is for GPUs
optimizers = optimizer_config.build(model_parts=[model])
schedules = LRSchedulersContainer.Config(warmup_steps=2).build(
    optimizers=optimizers, training_steps=args.steps
)
loader = ParallelAwareDataloader(
    Samples(rank, world), dp_rank=rank, dp_world_size=world, batch_size=8
)
state = TrainState()
checkpointer = NoticeCheckpointManager.Config(enable=True, interval=args.save_every).build(
    dataloader=loader,
    model_parts=[model],
    optimizers=optimizers,
    lr_schedulers=schedules,
    states={"train_state": state},
    sd_adapter=None,
    base_folder=tempfile.gettempdir(),
)
checkpointer.load()

batches = iter(loader)
while state.step < args.steps:
    state.step += 1
    batch = next(batches)
    logits = model(batch[:, :-1])
    loss = functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    optimizers.zero_grad()
    loss.backward()
    optimizers.step()
    schedules.step()
    trainyard.log(step=state.step, loss=loss.item(), tokens=batch[:, 1:].numel() * world)
    checkpointer.save(state.step, last_step=state.step == args.steps)

checkpointer.close()
dist.destroy_process_group()
