"""The loop that GPU runs are compared with: `torchrun gpu_baseline.py SHAPE FOLDER`.

A transformers Llama under DDP, AdamW, mixed precision by autocast, tokens made on the device before the
loop: no data, no logs, no checkpoints. Rank 0 writes the seconds of each step to FOLDER/bare.json.
SHAPE is the JSON of `gpu.Shape`. B samples of S + 1 tokens.
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
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM


def main(shape: dict[str, int], folder: Path) -> None:
    """Train so many steps."""
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    torch.manual_seed(0)
    settings = LlamaConfig(
        vocab_size=shape["vocabulary"],
        hidden_size=shape["hidden"],
        intermediate_size=shape["wide"],
        num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"],
        max_position_embeddings=shape["sequence"],
        use_cache=False,
    )
    model: Any = DistributedDataParallel(
        LlamaForCausalLM(settings).to(device),
        device_ids=[device.index] if on_gpu else None,
        gradient_as_bucket_view=True,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    size = (shape["samples"], shape["sequence"] + 1)
    tokens_BS1 = torch.randint(0, shape["vocabulary"], size, device=device)
    seconds = []
    for _ in range(shape["steps"]):
        begun = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16):
            logits_BSV = model(input_ids=tokens_BS1[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(
            logits_BSV.flatten(0, 1).float(), tokens_BS1[:, 1:].flatten()
        )
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()  # as every loop that logs its loss
        seconds.append(time.perf_counter() - begun)
    if dist.get_rank() == 0:
        (folder / "bare.json").write_text(json.dumps(seconds))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), Path(sys.argv[2]))
