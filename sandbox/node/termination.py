"""Termination of a pod: preStop, SIGTERM, grace period, SIGKILL."""

from __future__ import annotations

import threading
import time

from sandbox.node.api import Json
from sandbox.node.container import Container
from sandbox.node.container_entry import run_handler
from sandbox.node.pod_state import PodState
from sandbox.node.status import Verdict, stamp_seconds

AFTER_HOOK_S = 2.0
"""Time after SIGTERM for a container whose preStop hook used up the grace period."""
KILL_RETRY_S = 1.0


class Termination:
    """Termination of one pod. Deadlines use the monotonic clock, which is valid across restarts of the
    agent."""

    def __init__(self, state: PodState) -> None:
        self._state = state
        self._hooks: dict[str, threading.Thread] = {}
        self._kill_at: float | None = state.folder.load().get("kill_at")
        self._grace_seen: float | None = None
        self._mains_too = self._kill_at is not None

    @property
    def has_begun(self) -> bool:
        return self._kill_at is not None

    def update(self) -> None:
        """Start when the pod is deleted or past its deadline; a shorter second deletion shortens it."""
        metadata = self._state.pod["metadata"]
        if metadata.get("deletionTimestamp"):
            grace = float(metadata.get("deletionGracePeriodSeconds") or 0)
            if self._grace_seen is None or grace < self._grace_seen:
                self._grace_seen = grace
                self._start(grace)
        left = self.deadline_in()
        if left is not None and left <= 0 and self._state.verdict is None:
            self._state.verdict = Verdict(
                phase="Failed",
                reason="DeadlineExceeded",
                message="Pod was active on the node longer than the specified deadline",
            )
            self._start(self._state.grace())

    def begin_sidecars(self) -> None:
        """Start the grace period of the sidecars, after the main containers have ended."""
        if not self.has_begun:
            self._kill_at = time.monotonic() + self._state.grace()

    def deadline_in(self) -> float | None:
        """Return seconds until activeDeadlineSeconds runs out; None without one."""
        limit = self._state.pod["spec"].get("activeDeadlineSeconds")
        if limit is None:
            return None
        at_server = (self._state.pod.get("status") or {}).get("startTime")
        known = self._state.folder.load().get("started")
        started = stamp_seconds(at_server) if at_server else float(known or time.time())
        return started + float(limit) - time.time()

    def step(self) -> float | None:
        """Send due signals; return seconds until the next step, None when nothing runs."""
        if not self._state.any_running():
            return None
        assert self._kill_at is not None
        left = self._kill_at - time.monotonic()
        if left <= 0:
            if any(hook.is_alive() for hook in self._hooks.values()) and left > -AFTER_HOOK_S:
                self._terminate_all()
                return left + AFTER_HOOK_S
            self._state.kill_all()
            return KILL_RETRY_S
        mains = [c for c in self._state.mains if c.running()]
        if mains:
            for container in mains:
                self._request_stop(container)
        else:
            for container in reversed(self._state.inits):
                self._request_stop(container)
        return left

    def _start(self, grace_s: float) -> None:
        kill_at = time.monotonic() + grace_s
        if self._kill_at is not None and self._mains_too:
            kill_at = min(self._kill_at, kill_at)
        self._kill_at, self._mains_too = kill_at, True
        if self._state.folder.path.is_dir():
            self._state.folder.update(kill_at=kill_at)
        running = [c.name for c in self._state.mains if c.running()]
        for name in running:
            self._state.event("Killing", f"Stopping container {name} (grace {grace_s:g} s)")

    def _request_stop(self, container: Container) -> None:
        """Run preStop if there is one, then send SIGTERM; each once."""
        attempt = container.running()
        if attempt is None or attempt.marked("term"):
            return
        hook: Json | None = (container.spec.get("lifecycle") or {}).get("preStop")
        if not hook:
            container.terminate()
        elif not attempt.marked("prestop"):
            attempt.mark("prestop")
            thread = threading.Thread(
                target=self._run_hook, args=(container, hook), name="preStop", daemon=True
            )
            self._hooks[container.name] = thread
            thread.start()
        elif container.name not in self._hooks:
            container.terminate()  # an earlier agent was killed while the hook ran

    def _run_hook(self, container: Container, hook: Json) -> None:
        attempt = container.running()
        if attempt:
            limit = max(0.0, (self._kill_at or 0.0) - time.monotonic())
            error = run_handler(hook, attempt, self._state.ip, limit)
            if error:
                self._state.event("FailedPreStopHook", f"{container.name}: {error}", True)
        container.terminate()
        self._state.wake()

    def _terminate_all(self) -> None:
        for container in [*self._state.mains, *self._state.inits]:
            container.terminate()
