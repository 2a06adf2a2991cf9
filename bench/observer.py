"""Watch Workloads and pods and feed the invariant checker."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import urllib3

from bench.api import Api, ApiError, wait_until
from bench.invariants import InvariantChecker

_WORKLOADS_CRD: Final = "workloads.kueue.x-k8s.io"
_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PODS: Final = "/api/v1/pods"
_EXPIRED: Final = 410
_PAUSE_S: Final = 0.2


def workloads_path(api: Api) -> str:
    """All Workloads, in the version in which they are stored.

    In any other one each event would go through Kueue's conversion webhook: slower, and gone with Kueue.
    """
    versions = api.get(f"{_CRDS}/{_WORKLOADS_CRD}")["spec"]["versions"]
    stored = next(version["name"] for version in versions if version["storage"])
    return f"/apis/kueue.x-k8s.io/{stored}/workloads"


class Observer:
    """Watches from now on; `ledger` may be read under `lock`."""

    def __init__(self, api: Api, gpus: Mapping[str, int], *, with_pods: bool = True) -> None:
        """See `Ledger`."""
        self.checker = InvariantChecker(gpus, with_pods=with_pods)
        self.on_workload: Callable[[Any], None] | None = None
        """Receive each Workload after an event."""
        self.lock = threading.Lock()
        self._api = api
        self._stop = threading.Event()
        self.workloads = workloads_path(api)
        self._threads = [
            threading.Thread(target=self._follow, args=(path, take), daemon=True)
            for path, take in ((self.workloads, self._workload), (PODS, self._pod))
        ]

    def start(self) -> None:
        """Start both watches; there must be neither workloads nor pods yet."""
        for thread in self._threads:
            thread.start()

    def count(self, holds: Callable[[Any], bool]) -> int:
        """Gangs of which this holds."""
        with self.lock:
            return sum(1 for gang in self.checker.gangs.values() if holds(gang))

    def restarting(self, until_s: float) -> None:
        """See `Ledger.restarting`."""
        with self.lock:
            self.checker.restarting(until_s)

    def in_use(self) -> int:
        """GPUs that gangs hold now."""
        with self.lock:
            return self.checker.used.total()

    def unfinished(self) -> list[str]:
        """Gangs that have not finished, and where they stand."""
        with self.lock:
            return [
                f"{name} ({'admitted' if gang.holds else 'not admitted'}, {len(gang.bound)} pods came to nodes,"
                f" {len(gang.done)} of {gang.size} succeeded, {gang.evictions.total()} evictions)"
                for (_, name), gang in self.checker.gangs.items()
                if gang.finished is None
            ]

    def catch_up(self, deadline_s: float) -> None:
        """Wait until the watch of pods has seen as many succeed as the gangs have, or the deadline."""

        def behind() -> int:
            return self.count(lambda gang: len(gang.done) < gang.size)

        # Pods still missing after the deadline are reported by the invariant checker, with their gangs.
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: not behind(), "the watch of pods caught up", deadline_s)

    def stop(self) -> None:
        """Take no more events; the threads end with their watches."""
        self._stop.set()

    def _workload(self, kind: str, item: Any) -> None:
        self.checker.workload(kind, item, time.monotonic())
        if self.on_workload:
            self.on_workload(item)

    def _pod(self, _kind: str, item: Any) -> None:
        self.checker.pod(item)

    def _follow(self, path: str, take: Callable[[str, Any], None]) -> None:
        version = self._api.get(path, limit="1")["metadata"]["resourceVersion"]
        while not self._stop.is_set():
            with contextlib.suppress(urllib3.exceptions.HTTPError, OSError, ValueError):
                for kind, item in self._events(path, version):
                    version = item["metadata"]["resourceVersion"]
                    if kind != "BOOKMARK":
                        with self.lock:
                            take(kind, item)
            self._stop.wait(_PAUSE_S)

    def _events(self, path: str, version: str) -> Iterator[tuple[str, Any]]:
        """Events until the watch ends; a gap that cannot be closed is a violation."""
        try:
            for event in self._api.watch(path, version):
                if self._stop.is_set():
                    return
                if event["type"] == "ERROR":
                    self._lost(path, event["object"].get("code"))
                    return
                yield event["type"], event["object"]
        except ApiError as error:
            self._lost(path, error.status)

    def _lost(self, path: str, code: int | None) -> None:
        if code == _EXPIRED:
            with self.lock:
                self.checker.broken(f"the watch of {path} has a gap")
            self._stop.set()
