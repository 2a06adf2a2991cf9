"""Fit a linear model on every rank of the run; stop on a notice, and resume exactly: python train.py STEPS."""

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
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 1).to(device))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
checkpoints = dcp.Checkpointer(model, optimizer, every=100)
step = checkpoints.resume()
while step < steps:
    batch = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
    inputs = torch.randn(64, 8, generator=batch).to(device)  # by step: a resumed run repeats none
    loss = (model(inputs) - inputs.sum(dim=1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    trainyard.log(step=step, loss=loss.item())
    checkpoints.finish_step(step, last=step == steps)
dist.destroy_process_group()
