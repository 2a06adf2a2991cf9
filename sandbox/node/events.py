"""Events on pods, sent in the background, best effort."""

from __future__ import annotations

import hashlib
import logging
import queue
import threading
import time

from sandbox.node.api import ApiError, ApiUnavailable, Client, Json, object_path
from sandbox.node.status import stamp

log = logging.getLogger("events")

COMPONENT = "process-node"
KEPT_COUNTS = 4096
_STARTED = str(time.time_ns())
"""Part of the events' names: nodes may create and change events, but not read those of an earlier agent."""


class Events(threading.Thread):
    """Posts events in order; repeated ones increase the count of one Event object."""

    def __init__(self) -> None:
        super().__init__(name="events", daemon=True)
        self._queue: queue.Queue[tuple[Client, Json]] = queue.Queue(maxsize=1000)
        self._counts: dict[str, int] = {}

    def pod(
        self, client: Client, pod: Json, reason: str, message: str, warning: bool = False
    ) -> None:
        """Post an event about a Pod with its node's client, and log it."""
        metadata = pod["metadata"]
        about = {
            "kind": "Pod",
            "apiVersion": "v1",
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        level = logging.WARNING if warning else logging.INFO
        log.log(level, "%s/%s %s: %s", metadata["namespace"], metadata["name"], reason, message)
        host = (pod.get("spec") or {}).get("nodeName", "")
        try:
            self._queue.put_nowait((client, build_event(about, reason, message, warning, host)))
        except queue.Full:
            log.debug("event lost: queue full")

    def run(self) -> None:
        while True:
            client, event = self._queue.get()
            try:
                self._send(client, event)
            except (ApiError, ApiUnavailable) as error:
                log.debug("event lost: %s", error)
            except Exception:
                log.exception("event")

    def _send(self, client: Client, event: Json) -> None:
        namespace, name = event["metadata"]["namespace"], event["metadata"]["name"]
        if len(self._counts) > KEPT_COUNTS:
            self._counts.clear()
        count = self._counts[name] = self._counts.get(name, 0) + 1
        if count > 1:
            again = {"count": count, "lastTimestamp": event["lastTimestamp"]}
            try:
                client.patch(object_path("/api/v1", namespace, "events", name), again)
                return
            except ApiError as error:
                if not error.not_found:  # it may have expired
                    raise
        client.create(object_path("/api/v1", namespace, "events"), event | {"count": count})


def build_event(
    about: Json, reason: str, message: str, warning: bool, host: str, component: str = COMPONENT
) -> Json:
    """Return an Event object; equal events of this process have equal names."""
    key = "\0".join([_STARTED, about.get("uid", ""), reason, message]).encode()
    now = stamp(time.time())
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{about['name'][:200]}.{hashlib.sha256(key).hexdigest()[:16]}",
            "namespace": about.get("namespace") or "default",
        },
        "involvedObject": about,
        "reason": reason,
        "message": message[:1024],
        "type": "Warning" if warning else "Normal",
        "source": {"component": component, "host": host},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
