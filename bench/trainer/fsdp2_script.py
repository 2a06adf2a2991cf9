"""Train with FSDP2 and save in the background; `bench stall` and `bench durable` measure it.

`torchrun --nproc-per-node 2 -m bench.trainer.fsdp2_script`
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from bench.trainer.ddp_script import WIDTH, train
from trainyard import checkpoints


def build(megabytes: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a model whose layers are sharded over the ranks, and its optimizer, of so many megabytes in all."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    layers = max(1, round(megabytes * 1e6 / 12 / WIDTH**2))
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(layers)))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    model, optimizer = build(120)
    train(model, optimizer)  # so that the optimizer has a state, which a load then fills in place
    found = checkpoints.load({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    for step in range(found.step if found else 1, 200):
        train(model, optimizer)
        if step % 20 == 19:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            checkpoints.save_async(state, step + 1)
    checkpoints.wait()
