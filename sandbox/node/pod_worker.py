"""Lifecycle of one pod on its node: a thread that reconciles desired and actual state.

Every step is idempotent: the agent may be killed at any time, and a new worker resumes from the records on
disk.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from sandbox.node.api import ApiError, ApiUnavailable, Json, pod_path
from sandbox.node.container import Container
from sandbox.node.container_starter import ContainerStarter
from sandbox.node.context import RETRY_S, AgentContext
from sandbox.node.env import all_containers
from sandbox.node.launch import write_etc
from sandbox.node.pod_state import PodState, StatusReporter
from sandbox.node.status import Verdict, disruption
from sandbox.node.termination import Termination

log = logging.getLogger("pod")

NODE_LOST = Verdict(phase="Failed", reason="NodeLost", message="the node was taken away")


class PodWorker:
    """Runs one pod from its binding to its end, then calls `done`."""

    def __init__(self, shared: AgentContext, pod: Json, done: Callable[[PodWorker], None]) -> None:
        self.state = PodState(shared, pod)
        self.shared = shared
        self.first_step_done = threading.Event()
        """Set after the worker's first step."""
        self._termination = Termination(self.state)
        self._starter = ContainerStarter(self.state)
        self._reporter = StatusReporter(self.state)
        self._done = done
        self._gone = False
        self._lost = False
        self._over = False

    # Notifications: each sets a flag and wakes the thread.

    def start(self) -> None:
        threading.Thread(target=self._run, name=self.state.name, daemon=True).start()

    def update(self, pod: Json) -> None:
        if self.state.take(pod):
            self.state.wake()

    def object_deleted(self) -> None:
        """The Pod object was deleted: end its processes."""
        self._gone = True
        self.state.wake()

    def node_deleted(self) -> None:
        """The Node was deleted: kill the containers at once and fail the pod."""
        self._lost = True
        self.state.wake()

    # The thread.

    def _run(self) -> None:
        self._adopt()
        while not self._over:
            self.state.woken.clear()
            try:
                pause = self._step()
            except ApiUnavailable as error:
                log.debug("%s: %s", self.state.name, error)
                pause = RETRY_S
            except ApiError as error:
                log.warning("%s: %s", self.state.name, error)
                pause = RETRY_S
            except Exception:  # an error in one step must not end the worker
                log.exception("%s: unexpected", self.state.name)
                pause = RETRY_S * 5
            self.first_step_done.set()
            if not self._over:
                self.state.woken.wait(pause)
        self._done(self)

    @property
    def is_object_deleted(self) -> bool:
        return self._gone

    def _adopt(self) -> None:
        """Watch containers that an earlier agent started."""
        for container in [*self.state.inits, *self.state.mains]:
            attempt = container.running()
            if attempt:
                log.info("%s: found %s running", self.state.name, container.name)
                self.shared.exits.watch(attempt, self.state.wake)
                self._starter.adopted = True
                self._starter.probe(container, attempt)

    def _step(self) -> float | None:
        """Reconcile once; return seconds until the next step, None for no timer."""
        if self._gone or self._lost:
            return self._remove()
        self._termination.update()
        if not self._termination.has_begun:
            pause = None if self.state.is_over() else self._advance()
            if not self.state.is_over():
                self._reporter.send()
                return self._earliest(pause, self._termination.deadline_in())
            self._termination.begin_sidecars()
        pause = self._termination.step()
        if pause is not None:
            self._reporter.send()
            return pause
        self.state.ended = True
        self._finish()
        return None

    def _advance(self) -> float | None:
        """Start containers that should run; return seconds until the next one is due."""
        if not self._admit():
            return None
        self._prepare_pod()
        pause: float | None = None
        if not any(c.attempts for c in self.state.mains):
            done, pause = self._initialize()
            if not done:
                return pause
        for container in [*(c for c in self.state.inits if c.sidecar), *self.state.mains]:
            pause = self._earliest(pause, self._ensure_running(container))
        return self._earliest(pause, self._starter.renew_volumes())

    def _admit(self) -> bool:
        if self.state.address is None:
            refused = unsupported_features(self.state.pod)
            if refused:
                message = "; ".join(refused)
                self.state.verdict = Verdict(phase="Failed", reason="Unsupported", message=message)
                self.state.event("Unsupported", message, warning=True)
        return self.state.verdict is None

    def _prepare_pod(self) -> None:
        """Assign the pod's address and write its files, once per agent."""
        if self.state.address is not None:
            return
        known = self.state.folder.load()
        ip = known.get("ip")
        if not ip or not self.shared.addresses.claim(ip, self.state.uid):
            ip = self.shared.addresses.take(self.state.uid)
        self.state.folder.update(
            ip=ip,
            node=self.state.pod["spec"]["nodeName"],
            started=known.get("started") or time.time(),
        )
        self.state.address = ip
        if not known.get("ip"):
            write_etc(self.state.folder, self.state.pod, "")
        self.state.publish()

    def _initialize(self) -> tuple[bool, float | None]:
        """Run init containers in order; return (all completed or, for sidecars, started; seconds until due)."""
        pause: float | None = None
        for container in self.state.inits:
            pause = self._earliest(pause, self._ensure_running(container))
            if container.sidecar:
                if not container.view().started:
                    return False, pause
            elif container.exit_code() != 0:
                return False, pause
        return True, pause

    def _ensure_running(self, container: Container) -> float | None:
        """Start or restart the container if it should run; return seconds until that is due."""
        if container.running() or not self._should_run(container):
            return None
        wait = container.not_before - time.monotonic()
        if container.attempts and not container.create_failures:
            wait = max(wait, container.next_start() - time.time())
            if wait > 0:
                self._starter.back_off(container, wait)
        if wait > 0:
            return wait
        return self._starter.start(container)

    def _should_run(self, container: Container) -> bool:
        code = container.exit_code()
        if code is None or container.sidecar:
            return True
        if container in self.state.inits:
            return code != 0 and self.state.policy != "Never"
        return self.state.policy == "Always" or (self.state.policy == "OnFailure" and code != 0)

    # Ends.

    def _remove(self) -> float | None:
        """Kill all containers; then fail the pod (Node deleted) and remove its records."""
        self.state.kill_all()
        if self.state.any_running():
            return 1.0  # an exit wakes the thread earlier
        if self._lost and not self._gone:
            self.state.verdict = self.state.verdict or NODE_LOST
            self.state.ended = True
            self._fail_lost()
        self._release()
        self.state.folder.remove(self.shared.state)
        self._over = True
        return None

    def _fail_lost(self) -> None:
        """Do what the cloud controller and the pod garbage collector do for a vanished node.

        They take about a minute. Here the pod is marked as disrupted, so that a podFailurePolicy can
        ignore its failure, and deleted once its processes are dead.
        """
        status = self._reporter.status()
        if (self.state.pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            status = {}
        elif not self.state.disrupted():
            text = "PodGC: node no longer exists"
            status["conditions"].append(disruption("DeletionByPodGC", text, time.time()))
        try:
            if status:
                self._reporter.patch(status)
            self._delete()
        except ApiError as error:
            if not (error.not_found or error.conflict):
                raise

    def _finish(self) -> None:
        """All containers ended: report the final status; delete the object if it is terminating."""
        self._reporter.send()
        self._release()
        self.state.folder.clear(self.shared.state)
        if self.state.pod["metadata"].get("deletionTimestamp"):
            self._delete()
        self._over = True

    def _release(self) -> None:
        self.shared.hosts.remove(self.state.uid)
        self.shared.addresses.release(self.state.uid)

    def _delete(self) -> None:
        metadata = self.state.pod["metadata"]
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.state.uid}}
        try:
            self.shared.client.delete(pod_path(metadata["namespace"], metadata["name"]), options)
        except ApiError as error:
            if not (error.not_found or error.conflict):
                raise

    @staticmethod
    def _earliest(one: float | None, other: float | None) -> float | None:
        found = [seconds for seconds in (one, other) if seconds is not None]
        return min(found) if found else None


VOLUME_KINDS: Final = frozenset(
    {"persistentVolumeClaim", "emptyDir", "configMap", "secret", "projected", "downwardAPI"}
)
_OF_PODS: Final = (
    *("hostAliases", "hostIPC", "hostNetwork", "hostPID", "readinessGates"),
    *("setHostnameAsFQDN", "shareProcessNamespace"),
)
_OF_CONTAINERS: Final = ("envFrom", "startupProbe", "volumeDevices")


def unsupported_features(pod: Json) -> list[str]:
    """Return one line per unsupported feature of the pod; empty when it can run."""
    spec = pod["spec"]
    found = [_line(f"spec.{name}") for name in _OF_PODS if spec.get(name)]
    for volume in spec.get("volumes") or []:
        kind = next((key for key in volume if key != "name"), "emptyDir")
        if kind not in VOLUME_KINDS:
            valid = f"use one of {', '.join(sorted(VOLUME_KINDS))}"
            found.append(_line(f"volume {volume['name']}: {kind}", valid))
    for container in all_containers(pod):
        name = f"container {container['name']}"
        found += [_line(f"{name}: {one}") for one in _OF_CONTAINERS if container.get(one)]
        if (container.get("securityContext") or {}).get("privileged"):
            found.append(_line(f"{name}: privileged"))
        if any("subPathExpr" in mount for mount in container.get("volumeMounts") or []):
            found.append(_line(f"{name}: subPathExpr", "use subPath"))
        if "postStart" in (container.get("lifecycle") or {}):
            found.append(_line(f"{name}: lifecycle.postStart", "run it in the container's command"))
    return found


def _line(what: str, remedy: str = "remove it") -> str:
    return f"{what}: not supported on a process node; {remedy}"
