"""Small collectives on the CPU among the ranks of the default process group, beside those of the training."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist


class Ranks:
    """This rank among all; all methods are calls of all of them, in the same order."""

    def __init__(self) -> None:
        self.rank, self.count = 0, 1
        self._group: Any = None
        if dist.is_available() and dist.is_initialized():
            self.rank, self.count = dist.get_rank(), dist.get_world_size()
        if self.count > 1:
            self._group = dist.new_group(backend="gloo")

    def any(self, flag: bool) -> bool:
        return bool(self.all_reduce(torch.tensor([int(flag)]), dist.ReduceOp.MAX))

    def all_reduce(self, tensor: torch.Tensor, op: dist.ReduceOp.RedOpType) -> torch.Tensor:
        if self._group is not None:
            self._wait(lambda: dist.all_reduce(tensor, op, group=self._group))
        return tensor

    def share(self, work: Callable[[], Any]) -> Any:
        """Return what rank 0 finds, which has to fit into JSON."""
        return self.gather(work() if self.rank == 0 else None)[0]

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, which have to fit into JSON."""
        if self._group is None:
            return [json.loads(json.dumps(value))]
        text = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        longest = int(self.all_reduce(torch.tensor([text.numel()]), dist.ReduceOp.MAX))
        padded = torch.full((longest,), ord(" "), dtype=torch.uint8)
        padded[: text.numel()] = text
        found = [torch.empty_like(padded) for _ in range(self.count)]
        self._wait(lambda: dist.all_gather(found, padded, group=self._group))
        return [json.loads(one.numpy().tobytes()) for one in found]

    def _wait(self, work: Callable[[], object]) -> None:
        work()
