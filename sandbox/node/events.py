"""Events on pods and nodes, sent in the background, best effort."""

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


class Events(threading.Thread):
    """Posts events in order; repeated ones increase the count of one Event object."""

    def __init__(self, client: Client) -> None:
        super().__init__(name="events", daemon=True)
        self._client = client
        self._queue: queue.Queue[Json] = queue.Queue(maxsize=1000)

    def pod(self, pod: Json, reason: str, message: str, warning: bool = False) -> None:
        """Post an event about a Pod and log it."""
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
        self._put(about, reason, message, warning, (pod.get("spec") or {}).get("nodeName", ""))

    def node(self, name: str, reason: str, message: str, warning: bool = False) -> None:
        """Post an event about a Node (namespace default, where kubectl looks for it) and log it."""
        log.log(logging.WARNING if warning else logging.INFO, "%s %s: %s", name, reason, message)
        about = {"kind": "Node", "apiVersion": "v1", "name": name, "uid": name}
        self._put(about, reason, message, warning, name)

    def run(self) -> None:
        while True:
            event = self._queue.get()
            try:
                _send(self._client, event)
            except (ApiError, ApiUnavailable) as error:
                log.debug("event lost: %s", error)
            except Exception:
                log.exception("event")

    def _put(self, about: Json, reason: str, message: str, warning: bool, host: str) -> None:
        try:
            self._queue.put_nowait(build_event(about, reason, message, warning, host))
        except queue.Full:
            log.debug("event lost: queue full")


def build_event(
    about: Json, reason: str, message: str, warning: bool, host: str, component: str = COMPONENT
) -> Json:
    """Return an Event object; equal events have equal names."""
    key = "\0".join([about.get("uid", ""), reason, message]).encode()
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


def _send(client: Client, event: Json) -> None:
    namespace, name = event["metadata"]["namespace"], event["metadata"]["name"]
    try:
        client.create(object_path("/api/v1", namespace, "events"), event)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
        path = object_path("/api/v1", namespace, "events", name)
        count = int(client.get(path).get("count") or 1) + 1
        client.patch(path, {"count": count, "lastTimestamp": event["lastTimestamp"]})
