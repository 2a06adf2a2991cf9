"""A plain training script for torchrun: the baseline that launches and restarts are compared with.

`torchrun baseline.py FOLDER STEPS SAVE_EVERY MODEL` appends `STEP TIME PID BEGUN` of rank 0 to
FOLDER/progress. Every SAVE_EVERY steps (0: never) it saves synchronously with
torch.distributed.checkpoint and appends `STEP SECONDS` to FOLDER/saves. It resumes from the newest
complete save. It imports nothing of the trainer. MODEL is `mlp` (torch alone) or the JSON of a
transformers Llama configuration.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

BATCH, LENGTH = 8, 64


def main(folder: Path, steps: int, save_every: int, model_name: str) -> None:
    """Train until the last step, from the newest save on."""
    begun = time.time()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = DistributedDataParallel(build(model_name))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    step = load(folder, model, optimizer)
    while step < steps:
        optimizer.zero_grad(set_to_none=True)
        loss(model, model_name).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if dist.get_rank() == 0:
            with (folder / "progress").open("a") as stream:
                stream.write(f"{step} {time.time()} {os.getpid()} {begun}\n")
        if save_every and step % save_every == 0:
            save(folder, step, model, optimizer)
    dist.destroy_process_group()


def build(name: str) -> torch.nn.Module:
    """A small network without anything but torch, or a Llama."""
    if name == "mlp":
        layers = [torch.nn.Linear(64, 64) for _ in range(8)]
        return torch.nn.Sequential(torch.nn.Embedding(256, 64), *layers, torch.nn.Linear(64, 256))
    from transformers.models.llama.configuration_llama import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaForCausalLM

    made: torch.nn.Module = LlamaForCausalLM(LlamaConfig(**json.loads(name)))
    return made


def loss(model: torch.nn.Module, name: str) -> torch.Tensor:
    """Of random tokens: what is learnt does not matter here."""
    tokens_BS1 = torch.randint(0, 256, (BATCH, LENGTH + 1))
    found: Any = model(tokens_BS1[:, :-1])
    logits_BSV = found if name == "mlp" else found.logits
    return torch.nn.functional.cross_entropy(logits_BSV.flatten(0, 1), tokens_BS1[:, 1:].flatten())


def state(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Everything that is saved, as DCP wants it."""
    from torch.distributed.checkpoint.state_dict import get_state_dict

    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments}


def save(folder: Path, step: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Save synchronously; complete once `latest` names it."""
    from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

    begun = time.perf_counter()
    dcp_save(state(model, optimizer), checkpoint_id=folder / f"save-{step}")
    if dist.get_rank() == 0:
        (folder / "latest.new").write_text(str(step))
        (folder / "latest.new").rename(folder / "latest")
        with (folder / "saves").open("a") as stream:
            stream.write(f"{step} {time.perf_counter() - begun}\n")


def load(folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the newest complete save; return its step, or 0 without one."""
    if not (folder / "latest").exists():
        return 0
    from torch.distributed.checkpoint.state_dict import set_state_dict
    from torch.distributed.checkpoint.state_dict_loader import load as dcp_load

    step = int((folder / "latest").read_text())
    found = state(model, optimizer)
    dcp_load(found, checkpoint_id=folder / f"save-{step}")
    set_state_dict(
        model,
        optimizer,
        model_state_dict=found["model"],
        optim_state_dict=found["optimizer"],
    )
    return step


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
