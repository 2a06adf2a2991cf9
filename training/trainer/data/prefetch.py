"""Samples that are there when their step begins: read ahead in the background, and on the GPU.

The thread gathers the samples of several steps at once, so that the training thread rarely has to
share the interpreter with it. Where samples go to a GPU, it copies them through page-locked memory
on a stream of its own, and a step waits for its copy on the device only.

Shapes: B samples of this rank's share of a step, S = sequence_length.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from training.trainer.data.sampler import Sampler
from training.trainer.data.windows import Int64s, Tokens

LOOKUP_SAMPLES: Final = 4096
"""Samples whose places are computed at once: fewer cost almost as much."""
JOIN_S: Final = 5.0


@dataclass(frozen=True, kw_only=True)
class PrefetchPlan:
    """Which samples this rank will ask for: the same share of each step, to the end."""

    share: range
    """Of a step's samples, this rank's."""
    step_samples: int
    """Of all ranks, per step."""
    end: int
    """Samples of the whole run."""
    steps_ahead: int
    """Steps that are kept ready at most; 0: none."""


class PrefetchLoader:
    """What the training loop takes its samples from."""

    def __init__(self, sampler: Sampler, plan: PrefetchPlan, device: torch.device) -> None:
        self._sampler = sampler
        self._plan = plan
        self._device = device
        self._now = _Reader(sampler, plan)
        """For steps that were not read ahead."""
        self._changed = threading.Condition()
        self._ready: deque[_Ready] = deque()
        self._next = -1
        """Samples before the step whose rows come next in `_ready`; -1 before the first."""
        self._generation = 0
        """Raised when the run takes another step than the next: what was read ahead is dropped."""
        self._reader_generation = 0
        """Of `_generation`, what the thread reads for."""
        self._ended = False
        """Whether all samples of the run are read."""
        self._failed: BaseException | None = None
        self._closed = False
        self._thread: threading.Thread | None = None

    def take(self, first: int, count: int) -> torch.Tensor:
        """Samples first .. first + count - 1 of the run, shape [B, S + 1], of the dataset's dtype.

        What was read ahead when it is the next step's share; anything else is read now.
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
        """Stop reading ahead."""
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
        """Read ahead from this step on; the caller holds the lock."""
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
        except BaseException as error:  # told by the step that waits for it
            with self._changed:
                self._failed = error
                self._changed.notify_all()

    def _wait_for_work(self, reader: _Reader) -> int | None:
        """How many steps to read now; None to end."""
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
    """One step's share, read ahead."""

    rows: torch.Tensor
    copied: Any
    """CUDA event after which the rows are on the device; None on the CPU."""

    def tensor(self) -> torch.Tensor:
        """The rows, for the current stream."""
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
        """Go on from the step before which so many samples were used."""
        self.step = step
        self._found: Int64s = np.empty(0, dtype=np.int64)
        self._used = 0

    def read(self, steps: int) -> Tokens | None:
        """The samples of up to so many steps, one after the other; None behind the end."""
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
        """Compute the places of these steps' samples, and of more."""
        plan = self._plan
        more = max(steps, -(-LOOKUP_SAMPLES // self.size))
        begins = self.step + plan.step_samples * np.arange(more, dtype=np.int64)
        share = np.arange(plan.share.start, plan.share.stop, dtype=np.int64)
        self._found = self._sampler.find((begins[:, None] + share).reshape(-1))


class _Copier:
    """Copies to a GPU through two page-locked buffers in turn, each as large as ever needed."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        torch.cuda.set_device(device)
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._turns: deque[tuple[torch.Tensor | None, Any]] = deque([(None, None)] * 2)

    def copy(self, rows: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """The rows on the device, and the event after which they are there."""
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
