"""Train a byte-level language model with DistributedDataParallel; this script knows nothing of Trainyard.

It saves every few steps and continues from what it finds: all that a spot node asks of a program. The
same script that stops on a notice instead of losing the steps since its last save: train.py.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from model import ByteModel, batch, read_text

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--output", type=Path, required=True, help="folder of checkpoint.pt")
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
model = DistributedDataParallel(ByteModel().to(device))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

checkpoint = args.output / "checkpoint.pt"
step = 0
if checkpoint.exists():
    saved = torch.load(checkpoint, map_location=device, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]
    print(f"resumed at step {step}", flush=True)

while step < args.steps:
    inputs, targets = batch(text, step, rank, world, device)
    loss = model(inputs, targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if rank == 0:
        print(f"step {step} loss {loss.item():.9g}", flush=True)
    if rank == 0 and (step % args.save_every == 0 or step == args.steps):
        args.output.mkdir(parents=True, exist_ok=True)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, checkpoint.with_suffix(".part"))
        os.replace(checkpoint.with_suffix(".part"), checkpoint)

dist.destroy_process_group()
