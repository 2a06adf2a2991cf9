"""All-reduce over all ranks: correctness and bus bandwidth.

Bus bandwidth is what nccl-tests report under that name: bytes x 2 (n - 1) / n / seconds, which compares
with the speed of the slowest link whatever the number of ranks n is. In GB/s: 10^9 bytes.
Source: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

import torch
import torch.distributed as dist

from trainer.parallel.world import World

MIB: Final = 1 << 20
SIZES_MIB: Final = {"cuda": (1, 16, 64, 256), "cpu": (1, 4, 16)}
"""Message sizes per rank: small ones show latency, large ones bandwidth."""
_WARM_UP: Final = 2
_TIMED: Final = 8
_PERIOD: Final = 251
"""Period of the values: a prime, so that chunks of a ring differ."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    mib: int
    gbps: float
    """Bus bandwidth in GB/s, by the slowest rank's clock."""
    wrong: int
    """Elements with a wrong sum, over all ranks."""


def measure_all_reduce(world: World) -> list[Measurement]:
    """Measure every size; all ranks call it and get the same result."""
    return [_one(world, mib) for mib in SIZES_MIB[world.device.type]]


def _one(world: World, mib: int) -> Measurement:
    elements = mib * MIB // 4
    wrong = _wrong(world, elements)
    work_E = torch.zeros(elements, device=world.device)
    for _ in range(_WARM_UP):
        dist.all_reduce(work_E)
    _finish(world)
    world.sum([0.0])  # all begin together
    begun = time.perf_counter()
    for _ in range(_TIMED):
        dist.all_reduce(work_E)
    _finish(world)
    longest = torch.tensor([time.perf_counter() - begun], dtype=torch.float64)
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    seconds = float(longest.item()) / _TIMED
    return Measurement(
        mib=mib, gbps=bus_gbps(mib * MIB, world.size, seconds), wrong=int(world.sum([wrong])[0])
    )


def bus_gbps(size: int, ranks: int, seconds: float) -> float:
    """Return the bus bandwidth in GB/s of an all-reduce of `size` bytes."""
    return size * 2 * (ranks - 1) / ranks / seconds / 1e9


def _wrong(world: World, elements: int) -> float:
    """Return this rank's elements with a wrong sum; integers add up exactly."""
    pattern_E = torch.arange(elements, device=world.device).remainder_(_PERIOD).float()
    work_E = pattern_E * (world.rank + 1)
    dist.all_reduce(work_E)
    total = world.size * (world.size + 1) // 2
    return float((work_E != pattern_E * total).sum().item())


def _finish(world: World) -> None:
    if world.device.type == "cuda":
        torch.cuda.synchronize(world.device)
