"""The life of one pod on its node: one thread that compares what is wanted with what is, and acts.

Every step can be repeated: the agent may be killed between any two, and a new worker goes on from the
records on disk.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sandbox import paths
from sandbox.node import hosts, images
from sandbox.node.addresses import Addresses
from sandbox.node.api import ApiError, ApiUnavailable, Client, Json, object_path, pod_path
from sandbox.node.container import PULL_BACKOFF_FIRST_S, Container
from sandbox.node.env import Fetch
from sandbox.node.events import Events
from sandbox.node.fields import BadReference, Placement
from sandbox.node.hosttable import HostTable
from sandbox.node.podfiles import compose, make_etc
from sandbox.node.podvolumes import NotYet, PodVolumes
from sandbox.node.probes import Prober, probed
from sandbox.node.records import Attempt, PodFolder, pod_folder
from sandbox.node.rootfs import BadMount
from sandbox.node.runtime import Exits
from sandbox.node.status import (
    OWN_CONDITIONS,
    Verdict,
    disruption,
    phase,
    pod_status,
    stamp_seconds,
)
from sandbox.node.support import unsupported
from sandbox.node.termination import Termination

log = logging.getLogger("pod")

HOST_IP = "127.0.0.1"
RETRY_S = 2.0
"""Between tries when the API server is away or a volume is not ready."""
PULL_BACKOFF_LAST_S = 300.0
NODE_LOST = Verdict(phase="Failed", reason="NodeLost", message="the node was taken away")


@dataclass(frozen=True)
class Shared:
    """What all workers use."""

    client: Client
    state: paths.State
    events: Events
    exits: Exits
    addresses: Addresses
    hosts: HostTable
    allocatable: dict[str, dict[str, str]] = field(default_factory=dict)
    """Node name -> allocatable resources."""


class PodWorker:
    """Runs one pod from its binding to its end. `done` is called when nothing is left to do."""

    def __init__(self, shared: Shared, pod: Json, done: Callable[[PodWorker], None]) -> None:
        self.name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        self.shared = shared
        self.pod = pod
        self.settled = threading.Event()
        """Set once the worker has looked at its pod for the first time."""
        self.uid: str = pod["metadata"]["uid"]
        self.folder: PodFolder = pod_folder(shared.state, pod)
        spec = pod["spec"]
        self.inits = [Container(c, self.folder, True) for c in spec.get("initContainers") or []]
        self.mains = [Container(c, self.folder) for c in spec["containers"]]
        self.policy: str = spec.get("restartPolicy", "Always")
        self.verdict: Verdict | None = _standing(pod)
        self.ended = False
        self._ip: str | None = None
        self._volumes: PodVolumes | None = None
        self._volumes_ready = False
        self._termination = Termination(self)
        self._reported: Json | None = None
        self._wake = threading.Event()
        self._done = done
        self._gone = False
        self._lost = False
        self._over = False
        self._adopted = False

    # What others tell a worker; each only sets a mark and wakes the thread.

    def start(self) -> None:
        """Starts the worker's thread."""
        threading.Thread(target=self._run, name=self.name, daemon=True).start()

    def update(self, pod: Json) -> None:
        """The Pod object changed."""
        if _version(pod) >= _version(self.pod):
            self.pod = pod
            self._wake.set()

    def gone(self) -> None:
        """The Pod object is no more: nothing of it may go on running."""
        self._gone = True
        self._wake.set()

    def lost(self) -> None:
        """The node is no more: the containers die at once and the pod fails."""
        self._lost = True
        self._wake.set()

    def wake(self) -> None:
        """Something may have changed: a container ended, a timer ran out."""
        self._wake.set()

    # The thread.

    def _run(self) -> None:
        self._adopt()
        while not self._over:
            self._wake.clear()
            try:
                pause = self._step()
            except ApiUnavailable as error:
                log.debug("%s: %s", self.name, error)
                pause = RETRY_S
            except ApiError as error:
                log.warning("%s: %s", self.name, error)
                pause = RETRY_S
            except Exception:  # one pod's trouble must not end its supervision
                log.exception("%s: unexpected", self.name)
                pause = RETRY_S * 5
            self.settled.set()
            if not self._over:
                self._wake.wait(pause)
        self._done(self)

    @property
    def ip(self) -> str:
        """The pod's address; empty before it has one."""
        return self._ip or str(self.folder.load().get("ip") or "")

    @property
    def is_gone(self) -> bool:
        """Whether the Pod object is known to be no more."""
        return self._gone

    def _adopt(self) -> None:
        """Watches containers that a former agent started."""
        for container in [*self.inits, *self.mains]:
            attempt = container.running()
            if attempt:
                log.info("%s: found %s running", self.name, container.name)
                self.shared.exits.watch(attempt, self.wake)
                self._adopted = True
                self._probe(container, attempt)

    def _step(self) -> float | None:
        """Does what is to be done now; gives seconds until the next look, None for no timer."""
        if self._gone or self._lost:
            return self._vanish()
        self._termination.look()
        if not self._termination.begun:
            pause = None if self._is_over() else self._advance()
            if not self._is_over():
                self._report()
                return self._sooner(pause, self._termination.deadline_in())
            self._termination.begin_sidecars()
        pause = self._termination.step()
        if pause is not None:
            self._report()
            return pause
        self.ended = True
        self._finish()
        return None

    def _advance(self) -> float | None:
        """Starts what should run and does not; gives seconds until something is due."""
        if not self._admit():
            return None
        self._settle()
        pause: float | None = None
        if not any(c.attempts for c in self.mains):
            done, pause = self._initialize()
            if not done:
                return pause
        for container in [*(c for c in self.inits if c.sidecar), *self.mains]:
            pause = self._sooner(pause, self._keep(container))
        return self._sooner(pause, self._tokens())

    def _admit(self) -> bool:
        if self._ip is None:
            refused = unsupported(self.pod)
            if refused:
                message = "; ".join(refused)
                self.verdict = Verdict(phase="Failed", reason="Unsupported", message=message)
                self.shared.events.pod(self.pod, "Unsupported", message, warning=True)
        return self.verdict is None

    def _settle(self) -> None:
        """Gives the pod its address, name and files; once, and again after a restart."""
        if self._ip is not None:
            return
        known = self.folder.load()
        ip = known.get("ip")
        if self.pod["spec"].get("hostNetwork"):
            ip = HOST_IP
        elif not ip or not self.shared.addresses.claim(ip, self.uid):
            ip = self.shared.addresses.take(self.uid)
        self.folder.update(
            ip=ip,
            node=self.pod["spec"]["nodeName"],
            started=known.get("started") or time.time(),
        )
        self._ip = ip
        if not known.get("ip"):
            make_etc(self.folder, self.pod, "")
        self._publish()

    def _initialize(self) -> tuple[bool, float | None]:
        """Init containers in order: (all done or, if sidecars, started; seconds until due)."""
        pause: float | None = None
        for container in self.inits:
            pause = self._sooner(pause, self._keep(container))
            if container.sidecar:
                if not container.view().started:
                    return False, pause
            elif container.exit_code() != 0:
                return False, pause
        return True, pause

    def _keep(self, container: Container) -> float | None:
        """Starts or restarts the container if it should run; seconds until that is due."""
        if container.running() or not self._wanted(container):
            return None
        wait = container.not_before - time.monotonic()
        if container.attempts and not container.create_failures:
            wait = max(wait, container.next_start() - time.time())
            if wait > 0:
                self._back_off(container, wait)
        if wait > 0:
            return wait
        return self._start(container)

    def _wanted(self, container: Container) -> bool:
        code = container.exit_code()
        if code is None or container.sidecar:
            return True
        if container in self.inits:
            return code != 0 and self.policy != "Never"
        return self.policy == "Always" or (self.policy == "OnFailure" and code != 0)

    def _back_off(self, container: Container, wait: float) -> None:
        message = f"back-off {round(wait)}s restarting failed container={container.name}"
        if container.waiting is None:
            container.waiting = ("CrashLoopBackOff", message)
            self.shared.events.pod(
                self.pod, "BackOff", f"Back-off restarting failed container {container.name}", True
            )

    def _start(self, container: Container) -> float | None:
        """Makes and starts the next attempt; what hinders it is reported as waiting."""
        events, spec = self.shared.events, container.spec
        try:
            image = images.resolve(spec["image"], self.shared.state)
            self._prepare_volumes()
            attempt = container.new_attempt()
            launch = compose(
                self.pod,
                spec,
                image=image,
                volumes=self._volume_set(),
                placement=self._placement(),
                attempt=attempt,
                server=(self.shared.client.host, self.shared.client.port),
                fetch=self._fetch,
            )
        except images.ImageError as error:
            return self._pull_failed(container, str(error))
        except NotYet as error:
            events.pod(self.pod, "FailedMount", str(error), warning=True)
            container.postpone("ContainerCreating", str(error), RETRY_S)
            return RETRY_S
        except (BadReference, BadMount, OSError) as error:
            events.pod(self.pod, "Failed", f"Error: {error}", warning=True)
            container.postpone("CreateContainerConfigError", str(error), RETRY_S * 5)
            return RETRY_S * 5
        container.image_id = image.reference
        container.launch(
            attempt,
            launch.options,
            launch.command,
            lambda a, process: self.shared.exits.watch(a, self.wake, process),
        )
        events.pod(self.pod, "Started", f"Started container {container.name}")
        self._probe(container, attempt)
        self._publish()
        return None

    def _probe(self, container: Container, attempt: Attempt) -> None:
        """Begins to probe a container that has started, if it has probes."""

        def changed(what: str) -> None:
            if "failed" in what:
                self.shared.events.pod(self.pod, "Unhealthy", what, warning=True)
            self.wake()

        if probed(container.spec):
            Prober(container, attempt, self.ip, self._termination.grace(), changed).start()

    def _pull_failed(self, container: Container, message: str) -> float:
        again = container.create_failures > 0
        delay: float = min(PULL_BACKOFF_FIRST_S * 2**container.create_failures, PULL_BACKOFF_LAST_S)
        reason = "ImagePullBackOff" if again else "ErrImagePull"
        if again:
            message = f"Back-off pulling image {container.spec['image']!r}: {message}"
        self.shared.events.pod(self.pod, "Failed", f"{reason}: {message}", warning=True)
        container.postpone(reason, message, delay)
        return delay

    def _volume_set(self) -> PodVolumes:
        if self._volumes is None:
            self._volumes = PodVolumes(
                self.shared.client,
                self.shared.state,
                self.pod,
                self.folder,
                self._placement(),
                self._fetch,
            )
        return self._volumes

    def _prepare_volumes(self) -> None:
        if not self._volumes_ready:
            self._volume_set().prepare()
            self._volumes_ready = True

    def _tokens(self) -> float | None:
        """Renews service account tokens in time; those that a former agent wrote, now."""
        if self._adopted and any("projected" in v for v in self.pod["spec"].get("volumes") or []):
            self._prepare_volumes()
        self._adopted = False
        volumes = self._volumes
        if volumes is None or volumes.tokens_until is None:
            return None
        if time.time() >= volumes.tokens_until:
            volumes.refresh_tokens()
        return max(1.0, (volumes.tokens_until or time.time()) - time.time())

    def _placement(self) -> Placement:
        node = self.pod["spec"]["nodeName"]
        return Placement(
            pod_ip=self._ip or "",
            host_ip=HOST_IP,
            allocatable=self.shared.allocatable.get(node, {}),
        )

    @property
    def _fetch(self) -> Fetch:
        def fetch(kind: str, name: str) -> Json | None:
            path = object_path("/api/v1", self.pod["metadata"]["namespace"], kind, name)
            try:
                return self.shared.client.get(path)
            except ApiError as error:
                if error.not_found:
                    return None
                raise

        return fetch

    # Ends.

    def any_running(self) -> bool:
        """Whether a process of this pod lives."""
        return any(c.running() for c in [*self.inits, *self.mains])

    def kill_all(self) -> None:
        """SIGKILL to every container."""
        for container in [*self.inits, *self.mains]:
            container.kill()

    def _is_over(self) -> bool:
        """Whether no main container will ever run again, by itself or by a verdict."""
        if self.verdict is not None:
            return True
        inits, mains = [c.view() for c in self.inits], [c.view() for c in self.mains]
        return phase(self.policy, inits, mains) in ("Succeeded", "Failed")

    def _vanish(self) -> float | None:
        """Kills at once; then the pod fails (node lost) or was deleted already (gone)."""
        self.kill_all()
        if self.any_running():
            return 1.0  # an exit wakes us earlier
        if self._lost and not self._gone:
            self.verdict = self.verdict or NODE_LOST
            self.ended = True
            self._fail_lost()
        self._release()
        self.folder.remove(self.shared.state)
        self._over = True
        return None

    def _fail_lost(self) -> None:
        """What the cloud's controller and the pod garbage collector do for a node that vanished.

        They take a minute; here the pod is marked as disrupted (so that a podFailurePolicy can
        ignore it) and removed as soon as its processes are dead.
        """
        status = self._status()
        if (self.pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            status = {}
        else:
            text = "PodGC: node no longer exists"
            status["conditions"].append(disruption("DeletionByPodGC", text, time.time()))
        try:
            if status:
                self._patch(status)
            self._delete()
        except ApiError as error:
            if not (error.not_found or error.conflict):
                raise

    def _finish(self) -> None:
        """Everything has ended: the last status, and the object if its deletion was asked for."""
        self._report()
        self._release()
        self.folder.clear(self.shared.state)
        if self.pod["metadata"].get("deletionTimestamp"):
            self._delete()
        self._over = True

    def _release(self) -> None:
        self.shared.hosts.remove(self.uid)
        self.shared.addresses.release(self.uid)

    def _delete(self) -> None:
        metadata = self.pod["metadata"]
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
        try:
            self.shared.client.delete(pod_path(metadata["namespace"], metadata["name"]), options)
        except ApiError as error:
            if not (error.not_found or error.conflict):
                raise

    # What the API server is told.

    def _publish(self) -> None:
        """Lets the other pods find this one by name."""
        if self._ip is None:
            return
        ready = all(c.view().ready for c in self.mains)
        peer = hosts.peer_of(self.pod, self._ip, ready)
        self.shared.hosts.put(self.uid, peer, self.folder, self.pod["spec"].get("hostAliases"))

    def _status(self) -> Json:
        waiting = None if not self.inits else ("PodInitializing", "")
        reported = self._reported or self.pod.get("status") or {}
        previous = [c for c in reported.get("conditions") or [] if c["type"] in OWN_CONDITIONS]
        known: dict[str, Any] = self.folder.load()
        return pod_status(
            self.pod,
            [c.view(("PodInitializing", "")) for c in self.inits],
            [c.view(waiting) for c in self.mains],
            pod_ip=self._ip or known.get("ip"),
            host_ip=HOST_IP,
            started=self._start_time(known),
            now=time.time(),
            previous=previous,
            verdict=self.verdict,
            ended=self.ended,
            stopped=any(c.last and c.last.marked("stopped") for c in self.mains),
        )

    def _start_time(self, known: Json) -> float:
        at_server = (self.pod.get("status") or {}).get("startTime")
        if at_server:
            return stamp_seconds(at_server)
        return float(known.get("started") or time.time())

    def _report(self) -> None:
        """Patches the status if it differs from what was said last."""
        self._publish()
        status = self._status()
        # Also when somebody else has changed what is ours: a controller that took the node for dead
        # marks its pods as not ready.
        if status != self._reported or _differs(status, self.pod.get("status") or {}):
            self._patch(status)
            self._reported = status

    def _patch(self, status: Json) -> None:
        metadata = self.pod["metadata"]
        body = {"metadata": {"uid": self.uid}, "status": status}
        path = pod_path(metadata["namespace"], metadata["name"], "status")
        try:
            answer = self.shared.client.patch(path, body, "strategic")
            if _version(answer) >= _version(self.pod):
                self.pod = answer
        except ApiError as error:
            if not error.not_found and not error.conflict:
                raise
            log.debug("%s: status not taken: %s", self.name, error)

    @staticmethod
    def _sooner(one: float | None, other: float | None) -> float | None:
        found = [seconds for seconds in (one, other) if seconds is not None]
        return min(found) if found else None


def _version(pod: Json) -> int:
    """Of one object, a greater resourceVersion is a later one."""
    return int(pod["metadata"]["resourceVersion"])


def _differs(status: Json, known: Json) -> bool:
    """Whether the API server has another phase, or another value of a condition of ours."""
    ours = {c["type"]: c["status"] for c in status["conditions"]}
    theirs = {c["type"]: c["status"] for c in known.get("conditions") or []}
    return status["phase"] != known.get("phase") or not ours.items() <= theirs.items()


def _standing(pod: Json) -> Verdict | None:
    """The verdict that the pod already has: a pod that has ended never changes its phase."""
    status = pod.get("status") or {}
    if status.get("phase") not in ("Succeeded", "Failed"):
        return None
    return Verdict(
        phase=status["phase"],
        reason=status.get("reason") or "",
        message=status.get("message") or "",
    )
