"""Train a small Llama by replica groups that come and go; FSDP2 shards the model over the ranks of each group.

The lines that make the loop elastic are marked with +. A group is one `accelerate launch`: start as many as you
like, on hosts that share the run's folder, and end any of them.
"""

import argparse
import os
from pathlib import Path

import torch
from accelerate import Accelerator, DistributedType
from transformers import LlamaConfig, LlamaForCausalLM

import trainyard
from trainyard import elastic  # +

import without_gpu

WORKERS = 8  # passes of a step, divided over the groups
SAMPLES, LENGTH = 4, 128  # of a rank in a pass

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--save-every", type=int, default=20)
args = parser.parse_args()

accelerator = Accelerator(cpu=not torch.cuda.is_available())
if accelerator.distributed_type == DistributedType.MULTI_CPU:
    without_gpu.shard(accelerator)

torch.manual_seed(0)
sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
heads = {"num_attention_heads": 4, "attention_dropout": 0.1}
model = LlamaForCausalLM(LlamaConfig(vocab_size=256, **sizes, **heads))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
model, optimizer = accelerator.prepare(model, optimizer)
model.train()

files = sorted(Path(os.__file__).parent.glob("*.py"))
text = torch.frombuffer(bytearray(b"".join(map(Path.read_bytes, files))), dtype=torch.uint8)


def batch(step: int, worker: int) -> torch.Tensor:
    """Return this rank's samples: the same whenever the step is repeated."""
    ranks, rank = accelerator.num_processes, accelerator.process_index
    generator = torch.Generator().manual_seed((step * WORKERS + worker) * ranks + rank)
    starts = torch.randint(len(text) - LENGTH, (SAMPLES,), generator=generator)
    rows = torch.stack([text[start : start + LENGTH] for start in starts.tolist()])
    return rows.long().to(accelerator.device)


run = elastic.join(  # +
    model, optimizer.optimizer, workers=WORKERS, save_every=args.save_every
)
for step in run.steps(args.steps):  # + instead of: for step in range(args.steps)
    with step:  # +
        for worker in step.workers():  # +
            inputs = batch(step.number, worker)
            loss = model(input_ids=inputs, labels=inputs).loss
            accelerator.backward(loss)
            step.add(loss)  # +
        loss = step.reduce()  # +
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if accelerator.is_main_process:
            print(f"step {step.number} loss {loss!r} groups {run.groups}", flush=True)
        if run.leads:
            tokens = WORKERS * accelerator.num_processes * SAMPLES * LENGTH
            trainyard.log(step=step.number, loss=loss, tokens=tokens)

accelerator.end_training()
