"""How long a rank works for itself in a step, without its waits for samples, for other ranks or for a processor.

DistributedDataParallel exchanges gradients while the backward pass goes on. A rank's own part of that pass ends
with the gradient of the model's first parameter; until the pass returns, it waits for the others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

import torch

from training.trainer.parallel.build import Network

_SCHEDULING: Final = "/proc/thread-self/schedstat"


class WorkClock(Protocol):
    """Measures one step after the other."""

    def begin(self) -> None:
        """Note that the step begins: the samples are awaited."""

    def start(self) -> None:
        """Note that the samples are there."""

    def reduced(self) -> None:
        """Note that the backward pass has returned."""

    def computed(self) -> None:
        """Note that the gradients are clipped and the loss is read."""

    def seconds(self) -> tuple[float, float] | None:
        """Return the wait for samples and the work of this step; None: not known."""


def make_clock(network: Network, device: torch.device, *, waits_inside: bool = False) -> WorkClock:
    """Return the clock that fits how the model is distributed; for the thread that trains.

    `waits_inside`: whether ranks wait for each other before the last gradient is there, though none holds shards.
    """
    on_gpu = device.type == "cuda"
    if network.norm is None and not waits_inside:
        return _GpuEvents(network) if on_gpu else _Clock(network)
    return _Unknown() if on_gpu else _ProcessorTime()


def _call_when_ready(network: Network, note: Callable[[torch.Tensor], None]) -> None:
    """Have `note` called when the gradient of the model's first parameter is there."""
    first: Any = next(p for p in network.unwrapped.parameters() if p.requires_grad)
    first.register_post_accumulate_grad_hook(note)


class _Delay:
    """How long the thread was ready to run but had no processor, in nanoseconds, by the kernel's count."""

    def __init__(self) -> None:
        try:
            self._file = os.open(_SCHEDULING, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1

    def ns(self) -> int:
        """Return the delay since the thread began; 0 where the kernel does not count it."""
        if self._file < 0:
            return 0
        return int(os.pread(self._file, 64, 0).split()[1])


class _Clock:
    """Whole models on CPUs: between the given moments, less the time without a processor."""

    def __init__(self, network: Network) -> None:
        self._delay = _Delay()
        self._begun = self._worked = self._loader = 0
        _call_when_ready(network, self._ready)

    def begin(self) -> None:
        self._begun = self._now()

    def start(self) -> None:
        now = self._now()
        self._loader, self._worked, self._begun = now - self._begun, 0, now

    def _ready(self, _: torch.Tensor) -> None:
        self._worked = self._now() - self._begun

    def reduced(self) -> None:
        self._begun = self._now()

    def computed(self) -> None:
        self._worked += self._now() - self._begun

    def seconds(self) -> tuple[float, float] | None:
        return self._loader / 1e9, self._worked / 1e9

    def _now(self) -> int:
        return time.perf_counter_ns() - self._delay.ns()


class _GpuEvents:
    """Whole models on GPUs: the same by events of the stream that computes, which waits for the exchange."""

    def __init__(self, network: Network) -> None:
        make: Any = torch.cuda.Event
        self._events: list[Any] = [make(enable_timing=True) for _ in range(4)]
        self._begun = self._loader = 0.0
        _call_when_ready(network, lambda _: self._events[1].record())

    def begin(self) -> None:
        self._begun = time.perf_counter()

    def start(self) -> None:
        self._loader = time.perf_counter() - self._begun
        self._events[0].record()

    def reduced(self) -> None:
        self._events[2].record()

    def computed(self) -> None:
        self._events[3].record()

    def seconds(self) -> tuple[float, float] | None:
        start, ready, reduced, updated = self._events
        updated.synchronize()
        worked = float(start.elapsed_time(ready) + reduced.elapsed_time(updated)) / 1000
        return self._loader, worked


class _ProcessorTime:
    """Shards and stages on CPUs wait in many places: only the time on a processor counts."""

    def __init__(self) -> None:
        self._delay = _Delay()
        self._begun = self._worked = self._loader = 0.0

    def begin(self) -> None:
        self._begun = time.perf_counter() - self._delay.ns() / 1e9

    def start(self) -> None:
        self._loader = time.perf_counter() - self._delay.ns() / 1e9 - self._begun
        self._begun = time.thread_time()

    def reduced(self) -> None:
        pass

    def computed(self) -> None:
        self._worked = time.thread_time() - self._begun

    def seconds(self) -> tuple[float, float] | None:
        return self._loader, self._worked


class _Unknown:
    """Shards and stages on GPUs: their waiting is inside of kernels."""

    def begin(self) -> None:
        pass

    def start(self) -> None:
        pass

    def reduced(self) -> None:
        pass

    def computed(self) -> None:
        pass

    def seconds(self) -> tuple[float, float] | None:
        return None
