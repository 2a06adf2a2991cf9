"""State of one pod on its node, shared by everything that handles the pod, and its report to the API server."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from sandbox.node import hosts
from sandbox.node.api import ApiError, Json, pod_path
from sandbox.node.container import Container
from sandbox.node.context import HOST_IP, AgentContext
from sandbox.node.records import PodFolder, pod_folder
from sandbox.node.status import OWN_CONDITIONS, Verdict, phase, pod_status, stamp_seconds

DEFAULT_GRACE_S = 30.0


class PodState:
    """The newest Pod object, its containers and the outcome so far."""

    def __init__(self, shared: AgentContext, pod: Json) -> None:
        self.name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        self.shared = shared
        self.pod = pod
        self.uid: str = pod["metadata"]["uid"]
        self.folder: PodFolder = pod_folder(shared.state, pod)
        spec = pod["spec"]
        self.inits = [Container(c, self.folder, True) for c in spec.get("initContainers") or []]
        self.mains = [Container(c, self.folder) for c in spec["containers"]]
        self.policy: str = spec.get("restartPolicy", "Always")
        self.verdict: Verdict | None = _final_verdict(pod)
        self.ended = False
        self.address: str | None = None
        """The pod's address; None until this agent has assigned or claimed it."""
        self.woken = threading.Event()
        self._updating = threading.Lock()

    def take(self, pod: Json) -> bool:
        """Keep the object unless it is older than the known one; return whether it was kept."""
        with self._updating:
            if _version(pod) < _version(self.pod):
                return False
            self.pod = pod
            return True

    def event(self, reason: str, message: str, warning: bool = False) -> None:
        self.shared.events.pod(self.shared.client, self.pod, reason, message, warning)

    def wake(self) -> None:
        """Wake the worker: a container has ended, a timer has run out or the object has changed."""
        self.woken.set()

    @property
    def ip(self) -> str:
        return self.address or str(self.folder.load().get("ip") or "")

    def grace(self) -> float:
        grace = self.pod["spec"].get("terminationGracePeriodSeconds")
        return DEFAULT_GRACE_S if grace is None else float(grace)

    def any_running(self) -> bool:
        return any(c.running() for c in [*self.inits, *self.mains])

    def kill_all(self) -> None:
        for container in [*self.inits, *self.mains]:
            container.kill()

    def is_over(self) -> bool:
        """Whether no main container will run again: the pod has a verdict or its containers ended."""
        if self.verdict is not None:
            return True
        inits, mains = [c.view() for c in self.inits], [c.view() for c in self.mains]
        return phase(self.policy, inits, mains) in ("Succeeded", "Failed")

    def disrupted(self) -> bool:
        """Whether the API server already attributes the pod's end to a disruption."""
        conditions = (self.pod.get("status") or {}).get("conditions") or []
        return any(c["type"] == "DisruptionTarget" and c["status"] == "True" for c in conditions)

    def publish(self) -> None:
        """Make the pod resolvable by name for other pods."""
        if self.address is None:
            return
        ready = all(c.view().ready for c in self.mains)
        peer = hosts.peer_from(self.pod, self.address, ready)
        self.shared.hosts.put(self.uid, peer, self.folder)


def _final_verdict(pod: Json) -> Verdict | None:
    """The verdict that the pod already has: a pod that has ended never changes its phase."""
    status = pod.get("status") or {}
    if status.get("phase") not in ("Succeeded", "Failed"):
        return None
    return Verdict(
        phase=status["phase"],
        reason=status.get("reason") or "",
        message=status.get("message") or "",
    )


def _version(pod: Json) -> int:
    """Of one object, a greater resourceVersion is a later one."""
    return int(pod["metadata"]["resourceVersion"])


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
