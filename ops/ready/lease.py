"""A Lease that allows one readiness check at a time; its holder renews it.

Liveness of another holder is judged by changes of its Lease, not by its time stamp, because clocks differ.
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
"""Seconds without a renewal after which the holder counts as dead."""


class LeaseLock:
    """The exclusive right to start Jobs. `holder`: identity shown in messages."""

    def __init__(
        self, cluster: Cluster, holder: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster = cluster
        self._holder = holder
        self._clock = clock
        self._lease: Json | None = None
        self._renewed = 0.0

    def acquire(self, poller: Poller, log: Callable[[str], None]) -> None:
        """Acquire the lease, also from a dead holder. Raises ClusterError while another one is alive."""
        try:
            self._lease = self._cluster.create(LEASES, self._manifest())
        except ConflictError:
            self._take_over(poller, log)
        self._renewed = self._clock()

    def _take_over(self, poller: Poller, log: Callable[[str], None]) -> None:
        found = self._cluster.get(LEASES, NAME, NAMESPACE)
        if found is None:
            raise ClusterError(
                "lease/ready: another readiness check has just finished; run the command again"
            )
        holder = (found.get("spec") or {}).get("holderIdentity")
        log(f"waiting {STALE_S} s to see whether the readiness check of {holder} is still running")
        seen = objects.meta(found).get("resourceVersion")

        def moved() -> bool | None:
            now = self._cluster.get(LEASES, NAME, NAMESPACE)
            return True if now is None or objects.meta(now)["resourceVersion"] != seen else None

        if poller.wait_for(moved):
            raise ClusterError(
                f"lease/{NAME} -n {NAMESPACE}: another readiness check (holder {holder}) is running;"
                " retry when it finishes"
            )
        self._write(found)

    def renew_if_due(self) -> None:
        """Renew the lease if RENEW_S have passed. Raises ClusterError if another session took it."""
        if self._lease is not None and self._clock() - self._renewed >= RENEW_S:
            self._write(self._lease)
            self._renewed = self._clock()

    def release(self) -> None:
        """Delete the lease."""
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
            raise ClusterError(
                f"lease/{NAME} -n {NAMESPACE}: another readiness check took it over; retry when it finishes"
            ) from None

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
