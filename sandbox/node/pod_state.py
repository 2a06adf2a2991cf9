"""State of one pod on its node, shared by everything that handles the pod."""

from __future__ import annotations

import threading

from sandbox.node import hosts
from sandbox.node.api import Json
from sandbox.node.container import Container
from sandbox.node.context import AgentContext
from sandbox.node.records import PodFolder, pod_folder
from sandbox.node.status import Verdict, phase

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
