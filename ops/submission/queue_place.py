"""Where a run that was just submitted stands in its team's queue."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from infra.domain import naming
from ops import collect, objects
from ops.cluster import Cluster, ForbiddenError
from ops.objects import Json
from ops.runs import states

LOOKS: Final = 6
POLL_S: Final = 0.25
"""Between looks for the run's Workload, which Kueue creates after the run."""
ADMITTED: Final = "admitted"
_JOB_UID: Final = "kueue.x-k8s.io/job-uid"


def queue_line(cluster: Cluster, run: Json, sleep: Callable[[float], None] = time.sleep) -> str:
    """Return the run's place among the pending Workloads of its queue; at most LOOKS + 1 requests.

    The order is of priority and queue time, as in `run list`. Other teams' Workloads are not readable, so the
    expected wait is not known.
    """
    queue = objects.label(run, naming.QUEUE_NAME)
    if not queue:
        return "it has no queue; its pods start when nodes have room for them"
    why = f"trainyard run why {objects.name(run)} explains why it waits"
    try:
        place = _place(cluster, run, queue, sleep)
    except ForbiddenError:
        place = None
    if place == ADMITTED:
        return f"queue {queue}: admitted"
    text = f"{place}; expected wait" if place else "place and expected wait"
    return f"queue {queue}: {text} not known; {why}"


def _place(cluster: Cluster, run: Json, queue: str, sleep: Callable[[float], None]) -> str | None:
    """Return the place as a text; None if the run has no Workload yet, or one that does not wait."""
    namespace, uid = str(objects.meta(run)["namespace"]), str(objects.meta(run).get("uid"))
    for look in range(LOOKS):
        if look:
            sleep(POLL_S)
        mine = cluster.items(collect.WORKLOADS, namespace, f"{_JOB_UID}={uid}")
        if mine:
            break
    else:
        return None
    if objects.condition_is_true(mine[0], "Admitted"):
        return ADMITTED
    known = cluster.items(collect.WORKLOADS, namespace)
    order = states.queue_order(
        [one for one in known if (one.get("spec") or {}).get("queueName") == queue]
    )
    names = [objects.name(one) for one in order]
    if objects.name(mine[0]) not in names:
        return None
    place = names.index(objects.name(mine[0])) + 1
    return f"place {place} of {len(names)} that wait"
