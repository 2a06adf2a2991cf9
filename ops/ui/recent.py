"""Answers that are reused for a short time, so that pages do not each read the cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from ops.cluster import Cluster, Kind
from ops.objects import Json

FRESH_S: Final = 2.0
"""Age up to which an answer is returned without reading again."""
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
    reading: bool = False


class Recent(Generic[T]):
    """Values by key. Each key is read by one thread at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: dict[Hashable, _Entry[T]] = {}
        self._changed = threading.Condition()

    def get(self, key: Hashable, read: Callable[[], T]) -> T:
        """Return the value of a key: a recent one, or what `read` returns. Raises what `read` raised.

        A value that is older than FRESH_S is returned, and read again in the background; one that is older than
        STALE_S is not returned.
        """
        with self._changed:
            entry = self._entries.setdefault(key, _Entry())
            age = self._clock() - entry.read_at
            if age > FRESH_S and not entry.reading:
                entry.reading = True
                self._drop_old()
                threading.Thread(target=self._read, args=(entry, read), daemon=True).start()
            if age > STALE_S or (entry.error and age > FRESH_S):
                self._changed.wait_for(lambda: not entry.reading)
            if entry.error is not None:
                raise entry.error
            assert entry.value is not None
            return entry.value

    def _read(self, entry: _Entry[T], read: Callable[[], T]) -> None:
        value: T | None = None
        error: Exception | None = None
        try:
            value = read()
        except Exception as raised:
            error = raised
        with self._changed:
            entry.value, entry.error = value, error
            entry.read_at, entry.reading = self._clock(), False
            self._changed.notify_all()

    def _drop_old(self) -> None:
        old = sorted(self._entries.items(), key=lambda item: item[1].read_at)
        for key, entry in old[: max(0, len(old) - KEPT)]:
            if not entry.reading:
                del self._entries[key]


class SharedLists(Cluster):
    """A cluster whose lists are shared by all that read within FRESH_S seconds."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._clock = clock
        self._lists: dict[Hashable, tuple[float, list[Json]]] = {}

    def items(self, kind: Kind, namespace: str | None = None, selector: str = "") -> list[Json]:
        """As of `Cluster`."""
        key = (kind, namespace, selector)
        at, found = self._lists.get(key, (float("-inf"), []))
        if self._clock() - at > FRESH_S:
            found = self._cluster.items(kind, namespace, selector)
            self._lists = {
                k: one for k, one in self._lists.items() if self._clock() - one[0] <= FRESH_S
            }
            self._lists[key] = (self._clock(), found)
        return found

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Json | None:
        """As of `Cluster`."""
        return self._cluster.get(kind, name, namespace)

    def text(self, path: str, query: Any, timeout_s: float = 30.0) -> str | None:
        """As of `Cluster`."""
        return self._cluster.text(path, query, timeout_s)
