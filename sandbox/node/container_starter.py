"""Start containers of a pod: image, volumes, environment, probes; report failures as waiting."""

from __future__ import annotations

import time

from sandbox.node import images
from sandbox.node.api import ApiError, Json, object_path
from sandbox.node.container import PULL_BACKOFF_FIRST_S, PULL_BACKOFF_LAST_S, Container
from sandbox.node.context import RETRY_S
from sandbox.node.env import Fetch, InvalidReference
from sandbox.node.launch import compose_launch
from sandbox.node.pod_state import PodState
from sandbox.node.pod_volumes import PodVolumes, VolumeNotReady
from sandbox.node.probes import Prober, has_probes
from sandbox.node.records import Attempt
from sandbox.node.rootfs import InvalidMount

SOURCES_S = 60.0
"""Interval at which a ready server's ConfigMaps and Secrets are read again, as by kubelets."""
UNKNOWN_RETRY_S, UNKNOWN_MAX = 0.2, 10
"""Interval and number of retries while the API server refuses what a pod refers to: it learns a moment after the
agent that the pod is on this node."""


class ContainerStarter:
    def __init__(self, state: PodState) -> None:
        self._state = state
        self._volumes: PodVolumes | None = None
        self._volumes_ready = False
        self._followed = 0.0
        self.adopted = False
        """Whether containers run that an earlier agent started."""

    def back_off(self, container: Container, wait: float) -> None:
        message = f"back-off {round(wait)}s restarting failed container={container.name}"
        if container.waiting is None:
            container.waiting = ("CrashLoopBackOff", message)
            self._state.event(
                "BackOff", f"Back-off restarting failed container {container.name}", True
            )

    def start(self, container: Container) -> float | None:
        """Start the next attempt; on failure report waiting and return seconds to the retry."""
        spec = container.spec
        try:
            image = images.resolve_image(spec["image"], self._state.shared.state)
            self._prepare_volumes()
            attempt = container.new_attempt()
            launch = compose_launch(
                self._state.pod,
                spec,
                image=image,
                volumes=self._volume_set(),
                attempt=attempt,
                server=(self._state.shared.client.host, self._state.shared.client.port),
                fetch=self._fetch,
            )
        except images.ImageError as error:
            return self._pull_failed(container, str(error))
        except (VolumeNotReady, ApiError) as error:
            if (
                isinstance(error, ApiError)
                and error.forbidden
                and container.create_failures < UNKNOWN_MAX
            ):
                container.postpone("ContainerCreating", str(error), UNKNOWN_RETRY_S)
                return UNKNOWN_RETRY_S
            self._state.event("FailedMount", str(error), warning=True)
            container.postpone("ContainerCreating", str(error), RETRY_S)
            return RETRY_S
        except (InvalidReference, InvalidMount, OSError) as error:
            self._state.event("Failed", f"Error: {error}", warning=True)
            container.postpone("CreateContainerConfigError", str(error), RETRY_S * 5)
            return RETRY_S * 5
        container.image_id = image.reference
        container.launch(
            attempt,
            launch,
            lambda a, process: self._state.shared.exits.watch(a, self._state.wake, process),
        )
        self._state.event("Started", f"Started container {container.name}")
        self.probe(container, attempt)
        self._state.publish()
        return None

    def probe(self, container: Container, attempt: Attempt) -> None:
        def changed(what: str) -> None:
            if "failed" in what:
                self._state.event("Unhealthy", what, warning=True)
            self._state.wake()

        if has_probes(container.spec):
            Prober(container, attempt, self._state.ip, self._state.grace(), changed).start()

    def _pull_failed(self, container: Container, message: str) -> float:
        again = container.create_failures > 0
        delay: float = min(PULL_BACKOFF_FIRST_S * 2**container.create_failures, PULL_BACKOFF_LAST_S)
        reason = "ImagePullBackOff" if again else "ErrImagePull"
        if again:
            message = f"Back-off pulling image {container.spec['image']!r}: {message}"
        self._state.event("Failed", f"{reason}: {message}", warning=True)
        container.postpone(reason, message, delay)
        return delay

    def _volume_set(self) -> PodVolumes:
        if self._volumes is None:
            self._volumes = PodVolumes(
                self._state.shared.client,
                self._state.shared.state,
                self._state.pod,
                self._state.folder,
                self._state.ip,
                self._fetch,
            )
        return self._volumes

    def _prepare_volumes(self) -> None:
        if not self._volumes_ready:
            self._volume_set().prepare()
            self._volumes_ready = True

    def renew_volumes(self) -> float | None:
        """Renew service account tokens before they expire, an earlier agent's at once, and follow ConfigMaps and
        Secrets; return seconds until the next time."""
        volumes_spec = self._state.pod["spec"].get("volumes") or []
        if self.adopted and any("projected" in volume for volume in volumes_spec):
            self._prepare_volumes()
        self.adopted = False
        volumes = self._volumes
        if volumes is None:
            return None
        pause = self._follow_sources(volumes)
        if volumes.tokens_until is None:
            return pause
        if time.time() >= volumes.tokens_until:
            volumes.refresh_tokens()
        due = max(1.0, (volumes.tokens_until or time.time()) - time.time())
        return due if pause is None else min(pause, due)

    def _follow_sources(self, volumes: PodVolumes) -> float | None:
        """Update the files of a server's ConfigMaps and Secrets; pods that end keep what they started with.

        A controller that waits for a certificate of its own is not ready until the file is there.
        """
        if self._state.policy != "Always" or not volumes.follows_sources:
            return None
        now, ready = time.monotonic(), all(one.view().ready for one in self._state.mains)
        pause = SOURCES_S if ready else RETRY_S
        if now >= self._followed + pause:
            self._followed = now
            volumes.refresh_sources()
        return self._followed + pause - now

    @property
    def _fetch(self) -> Fetch:
        def fetch(kind: str, name: str) -> Json | None:
            path = object_path("/api/v1", self._state.pod["metadata"]["namespace"], kind, name)
            try:
                return self._state.shared.client.get(path)
            except ApiError as error:
                if error.not_found:
                    return None
                raise

        return fetch
