"""Readiness and liveness probes of one running container."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sandbox.node.api import Json
from sandbox.node.container import Container
from sandbox.node.container_entry import run_handler
from sandbox.node.records import Attempt

log = logging.getLogger("probes")

KINDS = ("readinessProbe", "livenessProbe")


def has_probes(spec: Json) -> bool:
    return any(spec.get(kind) for kind in KINDS)


@dataclass
class ProbeCounter:
    """Counts results of one probe; unset thresholds have the API's defaults."""

    spec: Json
    passed: bool
    """Current verdict; initially the one that holds before the first threshold."""
    streak: int = 0
    due: float = field(default=0.0)

    @property
    def period_s(self) -> float:
        return float(self.spec.get("periodSeconds") or 10)

    def count(self, ok: bool) -> bool:
        """Add a result; return whether the verdict changed."""
        if ok == self.passed:
            self.streak = 0
            return False
        self.streak += 1
        name, default = ("successThreshold", 1) if ok else ("failureThreshold", 3)
        if self.streak < int(self.spec.get(name) or default):
            return False
        self.passed, self.streak = ok, 0
        return True


class Prober(threading.Thread):
    """Probes one attempt of a container until it ends; stops it on a failed liveness probe."""

    def __init__(
        self,
        container: Container,
        attempt: Attempt,
        pod_ip: str,
        grace_s: float,
        changed: Callable[[str], None],
    ) -> None:
        """`changed(what)` is called when readiness changed or the container is stopped."""
        super().__init__(name=f"probes {container.name}", daemon=True)
        self._container = container
        self._attempt = attempt
        self._ip = pod_ip
        self._grace_s = grace_s
        self._changed = changed

    def run(self) -> None:
        spec, begun = self._container.spec, time.monotonic()
        tallies = [
            (
                kind,
                ProbeCounter(spec[kind], kind == "livenessProbe", due=begun + _delay(spec[kind])),
            )
            for kind in KINDS
            if spec.get(kind)
        ]
        while tallies and not self._over():
            kind, tally = min(tallies, key=lambda entry: entry[1].due)
            if not self._sleep_until(tally.due):
                return
            error = self._probe(tally)
            if tally.count(error is None):
                if kind == "readinessProbe":
                    self._container.ready = tally.passed
                    self._changed("ready" if tally.passed else f"Readiness probe failed: {error}")
                else:
                    self._end(f"Liveness probe failed: {error}")
                    return

    def _probe(self, tally: ProbeCounter) -> str | None:
        tally.due = time.monotonic() + tally.period_s
        action = {k: v for k, v in tally.spec.items() if isinstance(v, dict)}
        timeout_s = float(tally.spec.get("timeoutSeconds") or 1)
        named = resolve_port(action, self._container.spec)
        return run_handler(named, self._attempt, self._ip, timeout_s)

    def _end(self, why: str) -> None:
        """Send SIGTERM, then SIGKILL after the grace period; the restart policy applies afterwards."""
        log.warning("%s: %s", self._container.name, why)
        self._changed(why)
        self._container.terminate()
        if self._sleep_until(time.monotonic() + self._grace_s):
            self._container.kill()

    def _sleep_until(self, due: float) -> bool:
        """Sleep; return False when the container ended meanwhile."""
        while not self._over():
            left = due - time.monotonic()
            if left <= 0:
                return True
            time.sleep(min(left, 1.0))
        return False

    def _over(self) -> bool:
        return self._attempt.exit() is not None


def resolve_port(action: Json, container: Json) -> Json:
    """Return the action with a named port replaced by its number."""
    for kind in ("httpGet", "tcpSocket"):
        port = (action.get(kind) or {}).get("port")
        if isinstance(port, str):
            numbers = {p.get("name"): p["containerPort"] for p in container.get("ports") or []}
            return {kind: {**action[kind], "port": numbers.get(port, port)}}
    return action


def _delay(spec: Json) -> float:
    return float(spec.get("initialDelaySeconds") or 0)
