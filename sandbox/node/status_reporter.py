"""Report the status of a pod to the API server."""

from __future__ import annotations

import logging
import time
from typing import Any

from sandbox.node.api import ApiError, Json, pod_path
from sandbox.node.context import HOST_IP
from sandbox.node.pod_state import PodState
from sandbox.node.status import OWN_CONDITIONS, pod_status, stamp_seconds

log = logging.getLogger("report")


class StatusReporter:
    """Sends the status of one pod when it differs from the API server's."""

    def __init__(self, state: PodState) -> None:
        self._state = state
        self._reported: Json | None = None

    def status(self) -> Json:
        waiting = None if not self._state.inits else ("PodInitializing", "")
        reported = self._reported or self._state.pod.get("status") or {}
        previous = [c for c in reported.get("conditions") or [] if c["type"] in OWN_CONDITIONS]
        known: dict[str, Any] = self._state.folder.load()
        return pod_status(
            self._state.pod,
            [c.view(("PodInitializing", "")) for c in self._state.inits],
            [c.view(waiting) for c in self._state.mains],
            pod_ip=self._state.ip or None,
            host_ip=HOST_IP,
            started=self._start_time(known),
            now=time.time(),
            previous=previous,
            verdict=self._state.verdict,
            ended=self._state.ended,
            stopped=any(c.last and c.last.marked("stopped") for c in self._state.mains),
        )

    def _start_time(self, known: Json) -> float:
        at_server = (self._state.pod.get("status") or {}).get("startTime")
        if at_server:
            return stamp_seconds(at_server)
        return float(known.get("started") or time.time())

    def send(self) -> None:
        """Patch the status if it differs from the last report."""
        self._state.publish()
        status = self.status()
        # Also when another client changed our fields: the node lifecycle controller marks the pods of
        # an unresponsive node as not ready.
        if status != self._reported or _differs(status, self._state.pod.get("status") or {}):
            self.patch(status)
            self._reported = status

    def patch(self, status: Json) -> None:
        """Patch a status; ignore that the pod was deleted or replaced."""
        metadata = self._state.pod["metadata"]
        body = {"metadata": {"uid": self._state.uid}, "status": status}
        path = pod_path(metadata["namespace"], metadata["name"], "status")
        try:
            answer = self._state.shared.client.patch(path, body, "strategic")
            self._state.take(answer)
        except ApiError as error:
            if not error.not_found and not error.conflict:
                raise
            log.debug("%s: status not accepted: %s", self._state.name, error)


def _differs(status: Json, known: Json) -> bool:
    """Whether the API server has another phase or other values of our conditions."""
    ours = {c["type"]: c["status"] for c in status["conditions"]}
    theirs = {c["type"]: c["status"] for c in known.get("conditions") or []}
    return status["phase"] != known.get("phase") or not ours.items() <= theirs.items()
