"""The loop of examples/ddp/elastic.py by DistributedDataParallel, with as many passes and without Trainyard.

`python bench/plain_ddp.py FOLDER` with torchrun's variables; FOLDER holds model.py.
"""

import importlib
import sys
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, sys.argv[1])

example = importlib.import_module("model")

WORKERS = 8

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
text, device = example.read_text(), torch.device("cpu")
model = DistributedDataParallel(example.ByteModel(dropout=0.1))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10**6)
passes = WORKERS // world
for step in range(1, 10**6):
    for number in range(passes):
        with model.no_sync() if number < passes - 1 else nullcontext():
            worker = rank * passes + number
            loss = model(*example.batch(text, step, worker, WORKERS, device)) / passes
            loss.backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    print(f"step {step} loss {loss.item()!r} groups {world}", flush=True)
