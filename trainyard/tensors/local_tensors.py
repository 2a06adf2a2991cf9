"""This rank's part of each tensor: plain tensors are whole, DTensors are boxes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeGuard, cast

import torch

from trainyard.tensors.layout import Box, whole_box
from trainyard.tensors.plan import RankShards, TensorShard

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

DTYPES: Final = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""Type names of safetensors."""

Tensors = Mapping[str, torch.Tensor]
Groups = Mapping[str, Tensors]
"""Tensors by group (model, optimizer) and name; plain or DTensor."""


@dataclass(frozen=True, slots=True)
class LocalTensor:
    """A tensor with its box on this rank."""

    share: TensorShard
    local: torch.Tensor
    """The elements of the share's box; memory of the model or the optimizer, not a copy."""


def local_tensor(tensor: torch.Tensor) -> LocalTensor:
    """Describe a plain tensor or DTensor without communication. Raises ValueError for partial ones."""
    local = local_data(tensor)
    if not is_sharded(tensor):
        shape = tuple(tensor.shape)
        return LocalTensor(TensorShard(DTYPES[tensor.dtype], shape, whole_box(shape)), local)
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    if any(placement.is_partial() for placement in tensor.placements):
        raise ValueError("a DTensor with partial placements cannot be saved")
    shape, offset = compute_local_shape_and_global_offset(
        tensor.shape, tensor.device_mesh, tensor.placements
    )
    if tuple(local.shape) != tuple(shape):
        raise ValueError(f"a rank holds {tuple(local.shape)} where its share is {tuple(shape)}")
    box = Box(tuple(map(int, offset)), tuple(map(int, shape)))
    return LocalTensor(TensorShard(DTYPES[tensor.dtype], tuple(tensor.shape), box), local)


def local_data(tensor: torch.Tensor) -> torch.Tensor:
    """Return the local elements: memory of the model or the optimizer, not a copy."""
    if is_sharded(tensor):
        return cast(torch.Tensor, cast(Any, tensor).to_local()).detach()
    return tensor.detach()


def is_sharded(tensor: torch.Tensor) -> TypeGuard[DTensor]:
    # Code that has DTensors has loaded this module; other code does not pay for the import.
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local_shards(groups: Groups) -> RankShards:
    """Return this rank's shards, which all ranks exchange to plan a save."""
    return {
        group: {name: local_tensor(tensor).share for name, tensor in tensors.items()}
        for group, tensors in groups.items()
    }
