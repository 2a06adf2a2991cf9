"""Reads an object from its beginning, with several ranges under way ahead of the reader."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Final, Self

from training.objects import Objects
from training.objects.client import CHUNK_BYTES

READERS: Final = 8
"""Ranges under way at a time: 64 MiB of memory per open file."""


class S3Source:
    """A Source; `threads` do the reading, and may do so for several."""

    def __init__(self, objects: Objects, name: str, size: int, threads: ThreadPoolExecutor) -> None:
        self._objects = objects.within(float("inf"))
        self._name = name
        self._size = size
        self._threads = threads
        self._asked = 0
        self._ahead: deque[Future[bytes]] = deque()
        self._current = memoryview(b"")
        self._ask()

    def readinto(self, out: memoryview, /) -> int:
        """The next bytes, at most a range; 0 at the end. Raises ObjectError."""
        if not self._current and self._ahead:
            self._current = memoryview(self._ahead.popleft().result())
            self._ask()
        count = min(len(out), len(self._current))
        out[:count] = self._current[:count]
        self._current = self._current[count:]
        return count

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._objects.cancelled.set()
        for job in self._ahead:
            job.cancel()
        self._ahead.clear()

    def _ask(self) -> None:
        while self._asked < self._size and len(self._ahead) < READERS:
            count = min(CHUNK_BYTES, self._size - self._asked)
            job = self._threads.submit(self._objects.read, self._name, self._asked, count)
            self._ahead.append(job)
            self._asked += count
