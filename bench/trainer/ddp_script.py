"""Train with DistributedDataParallel and save in the background; `bench stall` and `bench durable` measure it.

`torchrun --nproc-per-node 2 -m bench.trainer.ddp_script`
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainyard import checkpoints

WIDTH = 1024


def build(megabytes: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a model and its optimizer, which hold so many megabytes: 12 bytes per parameter."""
    layers = max(1, round(megabytes * 1e6 / 12 / WIDTH**2))
    model = DistributedDataParallel(
        nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(layers)))
    )
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Take a step on random samples."""
    model(torch.randn(16, WIDTH)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    model, optimizer = build(120)
    found = checkpoints.load({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    if found:
        optimizer.load_state_dict(found.state["optimizer"])
    for step in range(found.step if found else 0, 200):
        train(model, optimizer)
        if step % 20 == 19:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            checkpoints.save_async(state, step + 1)
    checkpoints.wait()
