"""Compare this machine's clock with the API server's.

Starts of nodes and pods are the cluster's times, and ends and the current month this machine's: with a wrong clock
a team would have spent what it has not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from ops import objects
from ops.cluster import Cluster, Kind, UnreachableError

TOLERANCE_S: Final = 5.0
"""Difference that is accepted, besides the time of the request."""

REVIEWS: Final = Kind("authentication.k8s.io/v1", "selfsubjectreviews", "SelfSubjectReview")
"""Allowed to every user, stored nowhere, and stamped with the server's time."""

_STAMP_S: Final = 1.0
"""Resolution of the server's stamp."""


class WrongClockError(UnreachableError):
    """The clocks differ, or the server does not tell its time; a later look may succeed."""


def check(cluster: Cluster, clock: Callable[[], float] = time.time) -> None:
    """Raise WrongClockError if the clocks differ by more than TOLERANCE_S. `clock`: Unix seconds."""
    before = clock()
    review = cluster.create(REVIEWS, {"apiVersion": REVIEWS.api, "kind": REVIEWS.kind})
    after = clock()
    stamp = objects.time(objects.meta(review).get("creationTimestamp"))
    if stamp is None:
        raise WrongClockError(
            "the API server does not tell its time; this machine's clock is not checked"
        )
    server = stamp.timestamp()
    ahead, behind = before - server - _STAMP_S, server - after
    if max(ahead, behind) > TOLERANCE_S or after < before:
        how = "behind" if behind > ahead else "ahead of"
        raise WrongClockError(
            f"this machine's clock is {max(ahead, behind):.0f} s {how} the API server's;"
            f" at most {TOLERANCE_S:.0f} s are accepted; synchronize it"
        )
