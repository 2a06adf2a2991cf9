"""Train a byte-level language model by replica groups that come and go; every loss is that of an undisturbed run.

train.py without DistributedDataParallel; the lines that make the loop elastic are marked with +. Start it as often
as you like, on as many hosts as share the run's folder, and end any of them.
"""

import argparse

import torch

import trainyard
from trainyard import elastic  # +

from model import ByteModel, batch, read_text

WORKERS = 8  # passes of a step, divided over the groups

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--save-every", type=int, default=20)
args = parser.parse_args()

torch.manual_seed(0)
text = read_text()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = ByteModel(dropout=0.1).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)

run = elastic.join(  # +
    model, optimizer, schedule=schedule, workers=WORKERS, save_every=args.save_every
)
for step in run.steps(args.steps):  # + instead of: for step in range(args.steps)
    with step:  # +
        for worker in step.workers():  # +
            loss = model(*batch(text, step.number, worker, WORKERS, device))
            loss.backward()
            step.add(loss)  # +
        loss = step.reduce()  # +
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        print(f"step {step.number} loss {loss!r} groups {run.groups}", flush=True)
        if run.leads:
            trainyard.log(step=step.number, loss=loss, tokens=WORKERS * 8 * 64)
