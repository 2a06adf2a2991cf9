"""A loader that prefetches the next steps in a background thread and copies them to the GPU.

The thread gathers the samples of several steps at once, so that it rarely competes with training for
the interpreter. For a GPU it copies through pinned memory on its own stream; a step waits for its
copy on the device only.

Shapes: B samples of this rank's share of a step, S = sequence_length.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from trainer.data.sampler import Sampler
from trainer.data.windows import Int64s, Tokens

LOOKUP_SAMPLES: Final = 4096
"""Samples located per call: fewer cost almost as much."""
JOIN_S: Final = 5.0


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
    """The training loop's source of samples."""

    def __init__(self, sampler: Sampler, plan: PrefetchPlan, device: torch.device) -> None:
        self._sampler = sampler
        self._plan = plan
        self._device = device
        self._now = _Reader(sampler, plan)
        """For steps that were not prefetched."""
        self._changed = threading.Condition()
        self._ready: deque[_Ready] = deque()
        self._next = -1
        """Samples before the step whose rows come next in `_ready`; -1 before the first."""
        self._generation = 0
        """Incremented when the run takes another step than the next: prefetched steps are dropped."""
        self._reader_generation = 0
        """Generation that the thread reads for."""
        self._ended = False
        """Whether all samples of the run are read."""
        self._failed: BaseException | None = None
        self._closed = False
        self._thread: threading.Thread | None = None

    def take(self, first: int, count: int) -> torch.Tensor:
        """Return samples first .. first + count - 1 of the run, shape [B, S + 1], dataset dtype.

        The next step's share comes from the prefetched steps; anything else is read synchronously.
        """
        step = first - self._plan.share.start
        if count != self._now.size:
            return torch.from_numpy(self._sampler.take(first, count))
        if self._plan.steps_ahead:
            with self._changed:
                if step == self._next:
                    return self._pop().tensor()
                self._seek(step + self._plan.step_samples)
        return self._read_now(step)

    def close(self) -> None:
        """Stop prefetching."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread:
            self._thread.join(JOIN_S)

    def _read_now(self, step: int) -> torch.Tensor:
        if step != self._now.step:
            self._now.seek(step)
        rows = self._now.read(1)
        if rows is None:
            raise ValueError(f"no step begins after {step} samples; the run has {self._plan.end}")
        return torch.from_numpy(rows)

    def _pop(self) -> _Ready:
        """The next step's rows; the caller holds the lock."""
        if not self._ready:
            self._changed.wait_for(lambda: self._ready or self._failed or self._closed)
            if not self._ready:
                raise RuntimeError("reading ahead failed") from self._failed
        ready = self._ready.popleft()
        self._next += self._plan.step_samples
        if len(self._ready) == self._plan.steps_ahead // 2:
            self._changed.notify_all()
        return ready

    def _seek(self, step: int) -> None:
        """Prefetch from this step on; the caller holds the lock."""
        self._ready.clear()
        self._next = step
        self._generation += 1
        self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            reader = _Reader(self._sampler, self._plan)
            copier = _Copier(self._device) if self._device.type == "cuda" else None
            while (steps := self._wait_for_work(reader)) is not None:
                generation, size = self._reader_generation, len(self._plan.share)
                found = reader.read(steps)
                ready: list[_Ready] = []
                if found is not None:
                    rows, copied = torch.from_numpy(found), None
                    if copier:
                        rows, copied = copier.copy(rows)
                    ready = [_Ready(part, copied) for part in torch.split(rows, size)]
                with self._changed:
                    if generation == self._generation:
                        self._ready.extend(ready)
                        self._ended = not ready
                        self._changed.notify_all()
        except BaseException as error:  # raised by the step that waits for it
            with self._changed:
                self._failed = error
                self._changed.notify_all()

    def _wait_for_work(self, reader: _Reader) -> int | None:
        """Return the number of steps to read now; None to end."""
        with self._changed:
            self._changed.wait_for(self._is_work)
            if self._closed:
                return None
            if self._reader_generation != self._generation:
                self._reader_generation, self._ended = self._generation, False
                reader.seek(self._next)
            return self._plan.steps_ahead - len(self._ready)

    def _is_work(self) -> bool:
        if self._closed or self._reader_generation != self._generation:
            return True
        return not self._ended and len(self._ready) <= self._plan.steps_ahead // 2


@dataclass(frozen=True)
class _Ready:
    """One prefetched step."""

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
    """Reads consecutive steps."""

    def __init__(self, sampler: Sampler, plan: PrefetchPlan) -> None:
        self._sampler = sampler
        self._plan = plan
        self.size = len(plan.share)
        """Samples of one step."""
        self.seek(0)

    def seek(self, step: int) -> None:
        """Continue at the step that begins after this many samples."""
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
