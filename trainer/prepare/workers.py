"""Several processes that work on one preparation, with results in the order of their inputs."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Final, TypeVar

_In = TypeVar("_In")
_Out = TypeVar("_Out")

WORTH_BYTES: Final = 64 * 1024 * 1024
"""Less text than this is done sooner than processes have started."""
_AHEAD: Final = 2
"""Inputs under way per process, which bounds the memory for results that wait for their turn."""


def available_processes() -> int:
    """Return the number of cores that this process may use; a CPU limit of its container is not seen."""
    return len(os.sched_getaffinity(0))


def map_in_order(
    work: Callable[[_In], _Out],
    inputs: Iterable[_In],
    processes: int,
    *,
    bytes_: int,
    start: Callable[[], None] | None = None,
) -> Iterator[tuple[_In, _Out]]:
    """Yield each input with its result, computed by so many processes; by this one if the text is short.

    `bytes_`: size of the text in all; `start`: called first in each process. Raises what `work` raises.
    """
    if processes <= 1 or bytes_ < WORTH_BYTES:
        if start:
            start()
        yield from ((one, work(one)) for one in inputs)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=start) as pool:
        waiting: deque[tuple[_In, Future[_Out]]] = deque()
        try:
            for one in inputs:
                waiting.append((one, pool.submit(work, one)))
                if len(waiting) >= _AHEAD * processes:
                    first, result = waiting.popleft()
                    yield first, result.result()
            while waiting:
                first, result = waiting.popleft()
                yield first, result.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
