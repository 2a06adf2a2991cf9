"""The ranks of one group: they decide together, and none waits where another one cannot come."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

import torch
import torch.distributed as dist

from trainyard.contract import EXIT_FAILED
from trainyard.elastic.exchange import Lost, reason_of
from trainyard.exit_codes import report_exit_code

_POLL_S: Final = 0.02

T = TypeVar("T")
Why = Callable[[], tuple[str, float]]
"""Why waiting is in vain, and for how many seconds it has to be so; an empty text if it is not."""


class Ranks:
    """This rank among those of its group; all methods but `count` and `rank` are calls of all of them."""

    def __init__(self) -> None:
        self.rank, self.count = 0, 1
        self._group: Any = None
        if dist.is_initialized():
            self.rank, self.count = dist.get_rank(), dist.get_world_size()
        if self.count > 1:
            self._group = dist.new_group(backend="gloo")
        self.why_alone: Why = lambda: ("", 0.0)
        """Tells whether another rank of the group has ended."""

    def any(self, flag: bool) -> bool:
        """Return whether it is so on any rank."""
        return bool(self.all_reduce(torch.tensor([int(flag)]), dist.ReduceOp.MAX))

    def all_reduce(self, tensor: torch.Tensor, op: dist.ReduceOp.RedOpType) -> torch.Tensor:
        """Return the sum or the maximum over the ranks; ends this rank if another one has ended."""
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
        try:
            interruptible(work, self.why_alone)
        except (Lost, RuntimeError) as error:
            print(f"elastic: {reason_of(error)}; this group ends", file=sys.stderr, flush=True)
            end(EXIT_FAILED)


def interruptible(work: Callable[[], T], why: Why) -> T:
    """Return the result of a call that may wait for long; raise Lost once there is a reason not to wait.

    gloo cannot be interrupted: the thread that waits is left behind, and ends at gloo's own timeout.
    """
    found: list[T] = []
    errors: list[BaseException] = []
    done = threading.Event()

    def call() -> None:
        try:
            found.append(work())
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    threading.Thread(target=call, daemon=True).start()
    since = None
    while not done.wait(_POLL_S):
        reason, grace_s = why()
        now = time.monotonic()
        since = (since or now) if reason else None
        if since is not None and now - since >= grace_s:
            raise Lost(reason)
    if errors:
        raise errors[0]
    return found[0]


def end(code: int) -> NoReturn:
    """End this process at once: the interpreter's own end can wait for ranks that are gone."""
    report_exit_code(code)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
