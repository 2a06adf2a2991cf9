"""Train a byte-level language model with DistributedDataParallel; stop on a notice and resume exactly.

plain.py with four lines of Trainyard: no step is lost to a reclaim with notice, and metrics reach the dashboards.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import trainyard
from trainyard.adapters import dcp

from model import ByteModel, batch, read_text

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--save-every", type=int, default=20)
args = parser.parse_args()

dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()
device = torch.device("cpu")
if torch.cuda.is_available():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)

torch.manual_seed(0)
text = read_text()
model = DistributedDataParallel(ByteModel(dropout=0.1).to(device))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
torch.manual_seed(1 + rank)  # another dropout mask on each rank

checkpoints = dcp.Checkpointer(model, optimizer, every=args.save_every, schedule=schedule)
step = checkpoints.resume()

while step < args.steps:
    inputs, targets = batch(text, step, rank, world, device)
    loss = model(inputs, targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    step += 1
    trainyard.log(step=step, loss=loss.item(), tokens=inputs.numel() * world)
    checkpoints.finish_step(step, last=step == args.steps)

dist.destroy_process_group()
