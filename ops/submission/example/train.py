"""Fit a linear model on every rank of the run; stop on a notice, and resume exactly: train.py STEPS."""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import trainyard
from trainyard.adapters import dcp

steps = int(sys.argv[1])
cuda = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
dist.init_process_group("nccl" if cuda else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 1).to(device))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
checkpoints = dcp.Checkpointer(model, optimizer, every=500)
for step in range(checkpoints.resume() + 1, steps + 1):
    # Each step has batches of its own, so that a resumed run repeats none.
    batch = torch.randn(64, 8, generator=torch.Generator().manual_seed(step * world + rank))
    loss = (model(batch.to(device)) - batch.to(device).sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    trainyard.log(step=step, loss=loss.item())
    if rank == 0 and step % 100 == 0:
        print(f"step {step}/{steps}, loss {loss.item():.3g}", flush=True)
    checkpoints.finish_step(step, last=step == steps)
dist.destroy_process_group()
