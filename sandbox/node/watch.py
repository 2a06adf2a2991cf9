"""List and watch: a thread that reports every change of the objects at a path."""

from __future__ import annotations

import contextlib
import json
import logging
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import urllib3

from sandbox.node.api import ApiError, ApiUnavailable, Client, Json

log = logging.getLogger("watch")

WATCH_SECONDS = 270
BACKOFF_FIRST_S = 0.2
BACKOFF_LAST_S = 5.0

Handler = Callable[[str, Json], None]
"""Called in the watch thread with ADDED, MODIFIED or DELETED, and the object."""


class Informer(threading.Thread):
    """Reports the objects at `path`: the existing ones, then each change, until `stop()`.

    After a resync the handler gets ADDED or MODIFIED again, and DELETED for objects that vanished
    meanwhile. It must not raise and must not block for long.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        handler: Handler = lambda *_: None,
        query: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(name=f"watch {path}", daemon=True)
        self._client = client
        self._path = path
        self._query = dict(query or {})
        self._handler = handler
        self._known: dict[str, Json] = {}
        self._stopping = threading.Event()
        self._response: urllib3.BaseHTTPResponse | None = None
        self.synced = threading.Event()
        """Set after the first list was reported."""

    def stop(self) -> None:
        """End the thread soon; the handler is not called for later changes."""
        self._stopping.set()
        response = self._response
        if response is not None:
            with contextlib.suppress(ValueError, RuntimeError, OSError):  # it has already ended
                response.shutdown()

    def knows(self, uid: str) -> bool:
        """Whether an object with that uid existed at the last event."""
        return uid in self._known

    def items(self) -> list[Json]:
        return list(self._known.values())

    def run(self) -> None:
        delay = BACKOFF_FIRST_S
        version = ""
        while not self._stopping.is_set():
            try:
                if not version:
                    version = self._list()
                for seen in self._watch(version):
                    version, delay = seen, BACKOFF_FIRST_S
            except ApiError as error:
                if error.status == 410:  # the resourceVersion is too old: list again
                    version = ""
                    continue
                log.warning("%s: %s", self._path, error)
                delay = self._pause(delay)
            except ApiUnavailable as error:
                if delay <= BACKOFF_FIRST_S and not self._stopping.is_set():
                    log.warning("API server unavailable: %s", error)
                delay = self._pause(delay)
            except Exception:  # an invalid event must not end the watch: list again
                log.exception("%s: unexpected", self._path)
                version = ""
                delay = self._pause(delay)

    def _pause(self, delay: float) -> float:
        self._stopping.wait(delay * random.uniform(0.7, 1.3))
        return min(delay * 2, BACKOFF_LAST_S)

    def _list(self) -> str:
        answer = self._client.get(self._path, **self._query)
        now = {_uid(item): item for item in answer["items"] or []}
        for uid in [uid for uid in self._known if uid not in now]:
            self._report("DELETED", self._known[uid])
        for uid, item in now.items():
            self._report("MODIFIED" if uid in self._known else "ADDED", item)
        self.synced.set()
        return str(answer["metadata"]["resourceVersion"])

    def _watch(self, version: str) -> Iterator[str]:
        """Report events until the server ends the watch; yield the version after each."""
        query = {
            **self._query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        response = self._client.stream(self._path, query, WATCH_SECONDS + 30)
        self._response = response
        try:
            for line in _lines(response):
                if self._stopping.is_set():
                    return
                yield self._event(json.loads(line))
        finally:
            self._response = None
            response.close()

    def _event(self, event: dict[str, Any]) -> str:
        kind, item = event["type"], event["object"]
        if kind == "ERROR":
            raise ApiError(item.get("code", 500), item.get("reason", ""), item.get("message", ""))
        if kind != "BOOKMARK":
            self._report(kind, item)
        return str(item["metadata"]["resourceVersion"])

    def _report(self, kind: str, item: Json) -> None:
        if kind == "DELETED":
            self._known.pop(_uid(item), None)
        else:
            self._known[_uid(item)] = item
        if not self._stopping.is_set():
            self._handler(kind, item)


def _uid(item: Json) -> str:
    return str(item["metadata"]["uid"])


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    rest = b""
    try:
        for chunk in response.stream(None, decode_content=False):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (line for line in lines if line)
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        raise ApiUnavailable(str(error)) from error
