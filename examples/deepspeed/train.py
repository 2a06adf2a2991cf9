"""Train a small Llama with DeepSpeed ZeRO; stop on a notice and resume exactly.

zero2.json and zero3.json are the configurations. On GPUs remove `torch_adam` from them: it is there because
DeepSpeed's own Adam is compiled at first use, which needs a compiler in the image.
"""

import argparse
import json
import os
from pathlib import Path

import deepspeed
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import trainyard
from trainyard.adapters.deepspeed import Checkpointer

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--deepspeed", required=True, metavar="FILE", help="DeepSpeed configuration")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--save-every", type=int, default=20)
args = parser.parse_args()

if not torch.cuda.is_available():
    # gloo alone: DeepSpeed's own collectives for CPUs are compiled at first use and wait in busy loops.
    deepspeed.ops.__compatible_ops__ = {}
deepspeed.init_distributed(dist_backend="nccl" if torch.cuda.is_available() else "gloo")
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()

torch.manual_seed(0)
stage = json.loads(Path(args.deepspeed).read_text())["zero_optimization"]["stage"]
with deepspeed.zero.Init(config_dict_or_path=args.deepspeed, enabled=stage == 3):
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
engine, _, _, _ = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), config=args.deepspeed
)
torch.manual_seed(1 + rank)  # another dropout mask on each rank

files = sorted(Path(os.__file__).parent.glob("*.py"))
text = torch.frombuffer(bytearray(b"".join(file.read_bytes() for file in files)), dtype=torch.uint8)

checkpoints = Checkpointer(engine, every=args.save_every)
step = checkpoints.resume()

while step < args.steps:
    generator = torch.Generator().manual_seed(step * world + rank)
    starts = torch.randint(len(text) - 128, (8,), generator=generator)
    inputs = torch.stack([text[s : s + 128] for s in starts.tolist()]).long().to(engine.device)
    loss = engine(input_ids=inputs, labels=inputs).loss
    engine.backward(loss)
    engine.step()
    step += 1
    trainyard.log(step=step, loss=loss.item(), tokens=inputs.numel() * world)
    checkpoints.finish_step(step, last=step == args.steps)
