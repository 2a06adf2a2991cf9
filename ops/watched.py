"""Lists that a watch keeps, so that any number of readers cost one list and one watch of each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, Final

from ops import objects
from ops.cluster import Cluster, ClusterError, ForbiddenError, Kind
from ops.objects import Json

IDLE_S: Final = 60.0
"""Seconds without a reader after which a watch ends."""
RELIST_S: Final = 2.0
"""Seconds between two lists where the caller may not watch, and after a watch that failed."""
RELIST_MAX_S: Final = 10.0
"""The same where reading is slow, such as with thousands of runs."""
_READING_SHARE: Final = 0.05
"""Share of the time that may be spent reading one thing: decoding keeps pages from being served."""
FORBIDDEN_S: Final = 60.0
"""Seconds for which a refusal is not asked for again."""


def fresh_s(took_s: float) -> float:
    """Return how long what took so long to read is not read again."""
    return max(RELIST_S, min(RELIST_MAX_S, took_s / _READING_SHARE))


class Watched(Cluster):
    """A cluster whose lists are kept. Everything else is read and written as by `cluster`."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._clock = clock
        self._lists: dict[Hashable, _KeptList] = {}
        self._lock = threading.Lock()

    def items(self, kind: Kind, namespace: str | None = None, selector: str = "") -> list[Json]:
        key = (kind, namespace, selector)
        with self._lock:
            if key not in self._lists:
                self._lists = {k: one for k, one in self._lists.items() if not one.idle}
                self._lists[key] = _KeptList(self._cluster, kind, namespace, selector, self._clock)
            found = self._lists[key]
        return found.items()

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Json | None:
        return self._cluster.get(kind, name, namespace)

    def text(self, path: str, query: Any, timeout_s: float = 30.0) -> str | None:
        return self._cluster.text(path, query, timeout_s)

    def __getattr__(self, name: str) -> Any:
        # Writes of the base class take the connection of `cluster`.
        return getattr(self._cluster, name)


class _KeptList:
    """One list. It is read again when its watch has ended, for whatever reason."""

    def __init__(
        self,
        cluster: Cluster,
        kind: Kind,
        namespace: str | None,
        selector: str,
        clock: Callable[[], float],
    ) -> None:
        self._cluster, self._clock = cluster, clock
        self._of = kind, namespace, selector
        self._lock = threading.Lock()
        self._items: dict[str, Json] = {}
        self._asked = self._clock()
        self._watching = False
        self._may_watch = True
        self._until = float("-inf")
        """Until when the list, or the refusal, is not asked for again without a watch."""
        self._refusal: ForbiddenError | None = None

    @property
    def idle(self) -> bool:
        return self._clock() - self._asked > IDLE_S

    def items(self) -> list[Json]:
        """Return the objects by namespace and name. Raises ClusterError."""
        with self._lock:
            self._asked = self._clock()
            if not self._watching and self._asked >= self._until:
                self._list()
            if self._refusal:
                raise self._refusal
            return [self._items[key] for key in sorted(self._items)]

    def _list(self) -> None:
        self._refusal = None
        try:
            found, version = self._cluster.listing(*self._of)
        except ForbiddenError as error:
            self._refusal, self._until = error, self._asked + FORBIDDEN_S
            return
        self._items = {objects.full_name(item): item for item in found}
        if version and self._may_watch:
            self._watching = True
            threading.Thread(target=self._watch, args=(version,), daemon=True).start()
        else:
            now = self._clock()
            self._until = now + fresh_s(now - self._asked)

    def _watch(self, version: str) -> None:
        """Apply events until nobody reads the list, or the watch fails."""
        try:
            while not self.idle:
                for event in self._cluster.watch(*self._of, version):
                    version = self._apply(event) or version
        except ForbiddenError:
            self._may_watch = False
        except ClusterError:
            pass  # The next reader lists again, and hears why.
        finally:
            with self._lock:
                self._watching = False
                self._until = self._clock() + RELIST_S

    def _apply(self, event: Json) -> str:
        """Carry out an event; return the version of the list after it. Raises ClusterError."""
        item: Json = event["object"]
        if event["type"] == "ERROR":
            raise ClusterError(str(item.get("message")))
        with self._lock:
            if event["type"] == "DELETED":
                self._items.pop(objects.full_name(item), None)
            elif event["type"] != "BOOKMARK":
                self._items[objects.full_name(item)] = item
        return str(objects.meta(item).get("resourceVersion") or "")
