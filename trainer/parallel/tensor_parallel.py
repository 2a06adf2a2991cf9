"""Tensor parallelism: shard the matrices of each block over a tensor group (DTensor).

Attention is sharded by heads and the feed-forward layer by its inner width: the first matrix of each
pair by columns, the second by rows, so that a block communicates twice forward and twice backward.
Residual stream and norms are replicated; the output matrix is sharded by vocabulary.
Source: Shoeybi et al. 2019, "Megatron-LM", section 3.
"""

from __future__ import annotations

import warnings
from typing import Any, Final

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)

from trainer.parallel.architecture import decoder_blocks

_COLUMNS: Final = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
_INNER_COLUMNS: Final = ("mlp.gate_proj", "mlp.up_proj")
_ROWS: Final = ("self_attn.o_proj", "mlp.down_proj")


def apply_tensor_parallel(model: torch.nn.Module, mesh: DeviceMesh) -> None:
    """Replace the parameters of a Llama-like model by DTensors on a one-dimensional mesh."""
    # Logits are a view; nothing here changes them in place.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    plan: dict[str, ParallelStyle] = {name: ColwiseParallel() for name in _COLUMNS + _INNER_COLUMNS}
    plan.update({name: RowwiseParallel() for name in _ROWS})
    for block in decoder_blocks(model):
        parallelize_module(block, mesh, plan)
    head: Any = model.get_submodule("lm_head")
    if isinstance(head, torch.nn.Linear) and not has_tied_embeddings(model):
        parallelize_module(head, mesh, ColwiseParallel(output_layouts=Replicate()))


def has_tied_embeddings(model: torch.nn.Module) -> bool:
    """Return whether input and output embeddings are one parameter."""
    settings: Any = model.config
    return bool(settings.tie_word_embeddings)
