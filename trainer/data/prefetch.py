"""A loader that prefetches the next steps in a background thread and copies them to the GPU.

For a GPU it copies through pinned memory on its own stream; a step waits for its
copy on the device only.

Shapes: B samples of this rank's share of a step, S = sequence_length.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from trainer.data.sampler import Sampler
from trainer.data.windows import Int64s, Tokens

LOOKUP_SAMPLES: Final = 4096
"""Samples located per call: fewer cost almost as much."""


@dataclass(frozen=True, kw_only=True)
class PrefetchPlan:
    """The samples this rank takes: the same share of each step."""

    share: range
    """This rank's part of a step's samples."""
    step_samples: int
    """Samples of all ranks per step."""
    end: int
    """Samples of the whole run."""
    steps_ahead: int
    """Maximum steps to prefetch; 0 disables prefetching."""


class PrefetchLoader:
    def __init__(self, sampler: Sampler, plan: PrefetchPlan, device: torch.device) -> None:
        self._sampler, self._plan, self._device = sampler, plan, device
        self._now = _Reader(sampler, plan)
        """For steps that were not prefetched."""
        self._ahead = _Reader(sampler, plan)
        """Of the thread."""
        self._copier: _Copier | None = None
        self._thread = ThreadPoolExecutor(1, "feed")
        self._reads: deque[Future[list[_Ready]]] = deque()
        self._ready: deque[_Ready] = deque()
        """Steps of the last read that are not taken yet."""
        self._next = self._planned = -1
        """Samples before the step to take next, and before the first that is not being read."""

    def take(self, first: int, count: int) -> torch.Tensor:
        """Return samples first .. first + count - 1 of the run, shape [B, S + 1], dataset dtype.

        The next step's share comes from the prefetched steps; anything else is read synchronously. Raises what
        reading raised in the background.
        """
        step = first - self._plan.share.start
        if count != self._now.size:
            return torch.from_numpy(self._sampler.take(first, count))
        if step != self._next or not (self._ready or self._reads):
            return self._read_now(step)
        if not self._ready:
            self._ready.extend(self._reads.popleft().result())
        rows = self._ready.popleft().tensor()
        self._next += self._plan.step_samples
        self._read_ahead()
        return rows

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _read_now(self, step: int) -> torch.Tensor:
        if step != self._now.step:
            self._now.seek(step)
        rows = self._now.read(1)
        if rows is None:
            raise ValueError(f"no step begins after {step} samples; the run has {self._plan.end}")
        for read in self._reads:
            read.cancel()
        self._reads.clear()
        self._ready.clear()
        self._next = self._planned = self._now.step
        self._read_ahead()
        return torch.from_numpy(rows)

    def _read_ahead(self) -> None:
        """Have the thread read half of what it may at once, so that it rarely competes with training."""
        plan = self._plan
        steps = -(-plan.steps_ahead // 2)
        while steps and self._planned + plan.step_samples <= plan.end:
            ahead = (self._planned - self._next) // plan.step_samples
            if ahead + steps > plan.steps_ahead:
                return
            self._reads.append(self._thread.submit(self._read, self._planned, steps))
            self._planned += steps * plan.step_samples

    def _read(self, step: int, steps: int) -> list[_Ready]:
        """Return the rows of steps; in the thread."""
        if step != self._ahead.step:
            self._ahead.seek(step)
        found = self._ahead.read(steps)
        if found is None:
            return []
        rows, copied = torch.from_numpy(found), None
        if self._device.type == "cuda":
            self._copier = self._copier or _Copier(self._device)
            rows, copied = self._copier.copy(rows)
        return [_Ready(part, copied) for part in torch.split(rows, self._ahead.size)]


@dataclass(frozen=True)
class _Ready:
    rows: torch.Tensor
    copied: Any
    """CUDA event after which the rows are on the device; None on the CPU."""

    def tensor(self) -> torch.Tensor:
        """Return the rows for use on the current stream."""
        if self.copied is not None:
            stream = torch.cuda.current_stream(self.rows.device)
            stream.wait_event(self.copied)
            self.rows.record_stream(stream)
        return self.rows


class _Reader:
    def __init__(self, sampler: Sampler, plan: PrefetchPlan) -> None:
        self._sampler = sampler
        self._plan = plan
        self.size = len(plan.share)
        """Samples of one step."""
        self.seek(0)

    def seek(self, step: int) -> None:
        self.step = step
        self._found: Int64s = np.empty(0, dtype=np.int64)
        self._used = 0

    def read(self, steps: int) -> Tokens | None:
        """Return the samples of up to `steps` steps, concatenated; None past the end."""
        plan, used = self._plan, self._used
        end = self.step + steps * plan.step_samples
        if end > plan.end:
            steps = (plan.end - self.step) // plan.step_samples
            if steps < 1:
                return None
            end = self.step + steps * plan.step_samples
        count = steps * self.size
        if used + count > len(self._found):
            self._find(steps)
            used = 0
        self._used = used + count
        self.step = end
        return self._sampler.gather(self._found[used : used + count])

    def _find(self, steps: int) -> None:
        """Locate the samples of these and further steps."""
        plan = self._plan
        more = max(steps, -(-LOOKUP_SAMPLES // self.size))
        begins = self.step + plan.step_samples * np.arange(more, dtype=np.int64)
        share = np.arange(plan.share.start, plan.share.stop, dtype=np.int64)
        self._found = self._sampler.find((begins[:, None] + share).reshape(-1))


class _Copier:
    """Copies to a GPU through two alternating pinned buffers."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        torch.cuda.set_device(device)
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._turns: deque[tuple[torch.Tensor | None, Any]] = deque([(None, None)] * 2)

    def copy(self, rows: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Start the copy; return the device rows and the event after which they are valid."""
        buffer, before = self._turns.popleft()
        if before is not None:
            before.synchronize()
        if buffer is None or len(buffer) < len(rows):
            buffer = torch.empty_like(rows, pin_memory=True)
        buffer[: len(rows)].copy_(rows)
        with torch.cuda.stream(self._stream):
            there = buffer[: len(rows)].to(self._device, non_blocking=True)
        copied = self._stream.record_event()
        self._turns.append((buffer, copied))
        return there, copied
