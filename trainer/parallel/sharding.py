"""The part of a whole tensor that a rank holds, and how many ranks hold the same part."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from trainyard.tensors.local_tensors import is_sharded


@dataclass(frozen=True)
class Region:
    """A box of a whole tensor."""

    offset: tuple[int, ...]
    """First index, per dimension."""
    shape: tuple[int, ...]

    @property
    def slices(self) -> tuple[slice, ...]:
        """The box as an index."""
        pairs = zip(self.offset, self.shape, strict=True)
        return tuple(slice(begin, begin + length) for begin, length in pairs)


def local_region(tensor: torch.Tensor) -> Region:
    """Return the region that this rank holds; the whole tensor unless it is a DTensor."""
    if not is_sharded(tensor):
        return Region((0,) * tensor.ndim, tuple(tensor.shape))
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    shape, offset = compute_local_shape_and_global_offset(
        tensor.shape, tensor.device_mesh, tensor.placements
    )
    return Region(tuple(offset), tuple(shape))


def to_local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's local tensor."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def shard_count(tensor: torch.Tensor) -> int:
    """Return the number of shards of the tensor; 1 if it is not sharded."""
    if not is_sharded(tensor):
        return 1
    parts = 1
    for dimension, placement in enumerate(tensor.placements):
        if not placement.is_replicate():
            parts *= tensor.device_mesh.size(dimension)
    return parts
