"""A program of ranks that hold one model together by FSDP2: `elastic_sharded.py STEPS`."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

from trainyard import elastic

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1)
blocks = [nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.Dropout(0.1)) for _ in range(2)]
model = nn.Sequential(nn.Embedding(257, 32), *blocks, nn.Linear(32, 257))
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
for block in model[1:-1]:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
run = elastic.join(model, optimizer, workers=4, seed=1)
for step in run.steps(int(sys.argv[1])):
    with step:
        for worker in step.workers():
            generator = torch.Generator().manual_seed((step.number * 4 + worker) * 2 + rank)
            inputs = torch.randint(0, 257, (2, 16), generator=generator)
            loss = functional.cross_entropy(
                model(inputs).flatten(0, 1), (inputs * 3 % 257).flatten()
            )
            loss.backward()  # type: ignore[no-untyped-call]
            step.add(loss)
        mean = step.reduce()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"step {step.number} loss {mean!r} groups {run.groups}", flush=True)
dist.destroy_process_group()
