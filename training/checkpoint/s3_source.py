"""Reads an object from its beginning, with several ranges under way ahead of the reader."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from training.objects import Objects


class S3Source:
    """A Source; `threads` do the reading, and may do so for several."""

    def __init__(self, objects: Objects, name: str, size: int, threads: ThreadPoolExecutor) -> None:
        self._pieces = objects.ahead(name, size, threads)
        self._current = memoryview(b"")

    def readinto(self, out: memoryview, /) -> int:
        """The next bytes, at most a piece; 0 at the end. Raises ObjectError."""
        if not self._current:
            self._current = memoryview(next(self._pieces, b""))
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
        self._pieces.close()
