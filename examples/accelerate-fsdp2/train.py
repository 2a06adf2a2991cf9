"""Train a small Llama with Accelerate and FSDP2; stop on a notice and resume exactly.

fsdp2.yaml configures FSDP2; `accelerate launch` reads it.
"""

import argparse
import os
from pathlib import Path

import torch
from accelerate import Accelerator, DataLoaderConfiguration, DistributedType
from torch.utils.data import DataLoader, TensorDataset
from transformers import LlamaConfig, LlamaForCausalLM

import trainyard
from trainyard.adapters.accelerate import Checkpointer

import without_gpu

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--save-every", type=int, default=20)
parser.add_argument("--samples", type=int, default=4096, help="of 128 bytes, in an epoch")
args = parser.parse_args()

accelerator = Accelerator(
    cpu=not torch.cuda.is_available(),
    dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True, data_seed=0),
)
if accelerator.distributed_type == DistributedType.MULTI_CPU:
    without_gpu.shard(accelerator)

torch.manual_seed(0)
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        attention_dropout=0.1,
    )
)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
# Accelerate advances a scheduler once per process at each step.
ticks = args.steps * accelerator.num_processes
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, ticks)

files = sorted(Path(os.__file__).parent.glob("*.py"))
text = b"".join(file.read_bytes() for file in files)[: args.samples * 128]
samples = torch.frombuffer(bytearray(text), dtype=torch.uint8).view(-1, 128)
loader = DataLoader(
    TensorDataset(samples),
    batch_size=8,
    shuffle=True,
    drop_last=True,
    generator=torch.Generator(),  # its own: dropout is then the same after a resume
)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
model.train()
torch.manual_seed(1 + accelerator.process_index)  # another dropout mask on each rank

checkpoints = Checkpointer(accelerator, every=args.save_every)
step = checkpoints.resume()

while step < args.steps:
    epoch, done = divmod(step, len(loader))
    loader.set_epoch(epoch)
    for (inputs,) in accelerator.skip_first_batches(loader, done):
        inputs = inputs.long()
        loss = model(input_ids=inputs, labels=inputs).loss
        accelerator.backward(loss)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        step += 1
        tokens = inputs.numel() * accelerator.num_processes
        trainyard.log(step=step, loss=loss.item(), tokens=tokens)
        checkpoints.finish_step(step, last=step == args.steps)
        if step == args.steps:
            break

accelerator.end_training()
