"""One climb at a time: a Lease that the climb renews while it lives.

Whether another climb lives is seen from its Lease changing, never from its time stamp: clocks differ.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from typing import Final

from ops import objects
from ops.cluster import Cluster, ClusterError, ConflictError, Kind
from ops.objects import Json
from ops.ready.polling import Poller
from ops.ready.stack_facts import NAMESPACE

LEASES: Final = Kind("coordination.k8s.io/v1", "leases", "Lease")
NAME: Final = "ready"
RENEW_S: Final = 5.0
STALE_S: Final = 20
"""A climb that has not renewed its Lease for so long is dead."""


class LeaseLock:
    """The right to start Jobs. `holder`: who climbs, for people."""

    def __init__(
        self, cluster: Cluster, holder: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster = cluster
        self._holder = holder
        self._clock = clock
        self._lease: Json | None = None
        self._renewed = 0.0

    def acquire(self, poller: Poller, log: Callable[[str], None]) -> None:
        """Take the turn, from a dead climb too. Raises ClusterError while another one lives."""
        try:
            self._lease = self._cluster.create(LEASES, self._manifest())
        except ConflictError:
            self._take_over(poller, log)
        self._renewed = self._clock()

    def _take_over(self, poller: Poller, log: Callable[[str], None]) -> None:
        found = self._cluster.get(LEASES, NAME, NAMESPACE)
        if found is None:
            raise ClusterError("another climb just ended; try again")
        holder = (found.get("spec") or {}).get("holderIdentity")
        log(f"looks for {STALE_S} s whether the climb of {holder} still lives")
        seen = objects.meta(found).get("resourceVersion")

        def moved() -> bool | None:
            now = self._cluster.get(LEASES, NAME, NAMESPACE)
            return True if now is None or objects.meta(now)["resourceVersion"] != seen else None

        if poller.wait_for(moved):
            raise ClusterError(
                f"another climb goes on, of {holder}; wait for it: two would take each other's nodes"
            )
        self._write(found)

    def renew_if_due(self) -> None:
        """Renew it when it is time to. Raises ClusterError when somebody took it."""
        if self._lease is not None and self._clock() - self._renewed >= RENEW_S:
            self._write(self._lease)
            self._renewed = self._clock()

    def release(self) -> None:
        """Let others climb."""
        if self._lease is not None:
            self._cluster.delete(LEASES, NAME, NAMESPACE)
            self._lease = None

    def _write(self, lease: Json) -> None:
        version = {"resourceVersion": objects.meta(lease)["resourceVersion"]}
        change = {"metadata": version, "spec": self._manifest()["spec"]}
        try:
            self._lease = self._cluster.patch(LEASES, NAME, change, NAMESPACE)
        except ConflictError:
            self._lease = None
            raise ClusterError("another climb took over meanwhile; wait for it") from None

    def _manifest(self) -> Json:
        now = dt.datetime.now(dt.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        return {
            "apiVersion": LEASES.api,
            "kind": LEASES.kind,
            "metadata": {"name": NAME, "namespace": NAMESPACE},
            "spec": {
                "holderIdentity": self._holder,
                "leaseDurationSeconds": STALE_S,
                "renewTime": now,
            },
        }
