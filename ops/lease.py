"""A Lease that one process holds at a time; the others wait and take over when its holder is gone.

Another holder counts as gone when its Lease has not changed for GONE_S by this machine's clock: time stamps of
other machines are not compared. A controller stops writing VALID_S after its last renewal, well before that.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from collections.abc import Callable
from typing import Final

from ops import objects
from ops.cluster import TIMEOUT_S, Cluster, ConflictError, Kind, UnreachableError
from ops.objects import Json

LEASES: Final = Kind("coordination.k8s.io/v1", "leases", "Lease")
RENEW_S: Final = 5.0
"""Seconds after a renewal in which `renew` sends nothing."""
VALID_S: Final = 60.0
GONE_S: Final = VALID_S + 2 * TIMEOUT_S
"""A request that was sent while the Lease was valid has ended by then."""


class NotHeldError(UnreachableError):
    """Another process has the Lease, or it may by now; nothing was written."""


class Lease:
    """The right to write, as a Lease object. `holder`: identity that others see."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        name: str,
        holder: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._namespace, self._name = cluster, namespace, name
        self._holder, self._clock = holder, clock
        self._renewed = float("-inf")
        self._seen: tuple[str, float] = ("", 0.0)
        """Version of another holder's Lease, and when it was first seen."""

    def renew(self) -> None:
        """Acquire or renew the Lease. Raises NotHeldError while another holder may be alive."""
        begun = self._clock()
        if begun - self._renewed < RENEW_S:
            return
        try:
            holder = self._write()
        except ConflictError:
            holder = "another process"
        if holder:
            raise NotHeldError(f"lease/{self._name} -n {self._namespace}: held by {holder}")
        self._renewed = begun

    def check(self) -> None:
        """Raise NotHeldError unless this process may write now."""
        if self._clock() - self._renewed > VALID_S:
            raise NotHeldError(
                f"lease/{self._name} -n {self._namespace}: not renewed for {VALID_S:g} s;"
                " another process may have it by now"
            )

    def release(self) -> None:
        """Give the Lease up if it is still ours, so that the next holder need not wait."""
        self._renewed = float("-inf")
        found = self._cluster.get(LEASES, self._name, self._namespace)
        if found and _holder(found) == self._holder:
            with contextlib.suppress(ConflictError):
                self._patch(found, {"holderIdentity": ""})

    def _write(self) -> str:
        """Write the Lease as ours; return who has it, else empty."""
        found = self._cluster.get(LEASES, self._name, self._namespace)
        if found is None:
            self._cluster.create(LEASES, self._manifest())
            return ""
        version = str(objects.meta(found).get("resourceVersion"))
        holder = _holder(found)
        now = self._clock()
        if holder not in ("", self._holder):
            if self._seen[0] != version:
                self._seen = version, now
            if now - self._seen[1] < GONE_S:
                return holder
        self._patch(found, self._manifest()["spec"])
        return ""

    def _patch(self, found: Json, spec: Json) -> None:
        """Change the Lease as it was found. Raises ConflictError if it has changed since."""
        version = objects.meta(found).get("resourceVersion")
        change = {"metadata": {"resourceVersion": version}, "spec": spec}
        self._cluster.patch(LEASES, self._name, change, self._namespace)

    def _manifest(self) -> Json:
        now = dt.datetime.now(dt.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        return {
            "apiVersion": LEASES.api,
            "kind": LEASES.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": self._holder,
                "leaseDurationSeconds": int(GONE_S),
                "renewTime": now,
            },
        }


def _holder(lease: Json) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")
