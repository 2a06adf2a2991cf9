"""The ranks of a run: rendezvous, data shares and small collectives.

Control messages travel as CPU tensors over gloo, so that they never wait for the GPU; gradients use
NCCL where ranks have GPUs.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel

from trainer.config.settings import TrainerConfig
from trainer.parallel.layout import Layout

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class World:
    """This rank and its process group."""

    rank: int
    size: int
    layout: Layout
    """Ranks per dimension of the mesh."""
    device: torch.device

    @cached_property
    def data_rank(self) -> int:
        """Which of the `data_size` shares of the samples this rank reads."""
        return self.layout.data_rank(self.rank)

    @cached_property
    def data_size(self) -> int:
        """Number of data shares: ranks that read different samples."""
        return self.layout.data

    @cached_property
    def counts(self) -> bool:
        """Whether this rank's loss is the one counted for its samples, which other ranks may share."""
        return self.layout.counts(self.rank)

    @property
    def is_leader(self) -> bool:
        """Whether this is rank 0, which writes files and prints."""
        return self.rank == 0

    @property
    def device_name(self) -> str:
        if self.device.type == "cuda":
            return torch.cuda.get_device_name(self.device)
        return platform.processor() or platform.machine()

    def data_share(self, count: int) -> range:
        """Return this data rank's contiguous part of range(count); sizes differ by at most one."""
        begin = count * self.data_rank // self.data_size
        return range(begin, count * (self.data_rank + 1) // self.data_size)

    def sum(self, values: list[float]) -> list[float]:
        """Return sums over all ranks in float64, bitwise equal on every rank."""
        if self.size == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor)
        return [float(value) for value in tensor]

    def gather(self, value: T) -> list[T]:
        """Return the values of all ranks in their order, on every rank."""
        found = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(found, value)
        return found


@contextmanager
def join_world(config: TrainerConfig) -> Iterator[World]:
    """Join the ranks of torchrun's environment; a world of one without it.

    Collectives have the limit of the start until `limit_collectives`. A failure in the body skips the teardown:
    other ranks may be gone already.
    """
    device = _device(config.device)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    alone: dict[str, Any] = (
        {} if "RANK" in os.environ else {"store": HashStore(), "rank": 0, "world_size": 1}
    )
    dist.init_process_group(backend, timeout=timedelta(seconds=config.start_limit_s), **alone)
    size = dist.get_world_size()
    yield World(rank=dist.get_rank(), size=size, layout=config.parallel.layout(size), device=device)
    dist.destroy_process_group()


def limit_collectives(timeout_s: float) -> None:
    groups: Any = dist.distributed_c10d._world.pg_map
    for group in groups:
        dist.set_timeout(timedelta(seconds=timeout_s), group)


def fix_numerics(config: TrainerConfig) -> None:
    """Fix threads and algorithms, so that two runs give bitwise equal results."""
    torch.set_num_threads(config.threads)
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.set_deterministic_debug_mode(
            "error"
        )  # use_deterministic_algorithms loads the compiler
        # Uninitialized memory is never read; filling it costs a pass over every tensor.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def unwrap(model: torch.nn.Module) -> torch.nn.Module:
    return model.module if isinstance(model, DistributedDataParallel) else model


def _device(asked: str) -> torch.device:
    if asked == "cpu" or (asked == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    index = int(os.environ.get("LOCAL_RANK", "0"))
    torch.cuda.set_device(index)
    return torch.device("cuda", index)
