"""Answers that are reused for a short time, so that pages do not each read the cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from ops.watched import RELIST_S, fresh_s

STALE_S: Final = 20.0
"""Age up to which an answer is returned at once while it is read again."""
KEPT: Final = 200
"""Answers that are kept."""

T = TypeVar("T")


@dataclass
class _Entry(Generic[T]):
    value: T | None = None
    error: Exception | None = None
    read_at: float = float("-inf")
    took_s: float = 0.0
    reading: bool = False


class Recent(Generic[T]):
    """Values by key. Each key is read by one thread at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: dict[Hashable, _Entry[T]] = {}
        self._changed = threading.Condition()

    def get(self, key: Hashable, read: Callable[[], T]) -> T:
        """Return the value of a key: a recent one, or what `read` returns. Raises what `read` raised.

        A value that is older than `fresh_s` is returned, and read again in the background; one that is older than
        STALE_S is not returned.
        """
        with self._changed:
            entry = self._entries.setdefault(key, _Entry())
            age = self._clock() - entry.read_at
            old = age > (RELIST_S if entry.error else fresh_s(entry.took_s))
            if old and not entry.reading:
                entry.reading = True
                self._drop_old()
                threading.Thread(target=self._read, args=(entry, read), daemon=True).start()
            if age > STALE_S or (entry.error and old):
                self._changed.wait_for(lambda: not entry.reading)
            if entry.error is not None:
                raise entry.error
            assert entry.value is not None
            return entry.value

    def _read(self, entry: _Entry[T], read: Callable[[], T]) -> None:
        value: T | None = None
        error: Exception | None = None
        begun = self._clock()
        try:
            value = read()
        except Exception as raised:
            error = raised
        with self._changed:
            entry.value, entry.error = value, error
            entry.read_at, entry.reading = self._clock(), False
            entry.took_s = entry.read_at - begun
            self._changed.notify_all()

    def _drop_old(self) -> None:
        old = sorted(self._entries.items(), key=lambda item: item[1].read_at)
        for key, entry in old[: max(0, len(old) - KEPT)]:
            if not entry.reading:
                del self._entries[key]
