"""Where a run that was just submitted stands in its team's queue."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from infra.domain import naming
from ops import collect, groups, objects
from ops.cluster import Cluster, ForbiddenError
from ops.objects import Json
from ops.runs import states

LOOKS: Final = 6
POLL_S: Final = 0.25
"""Between looks for the run's Workload, which Kueue creates after the run and admits at once or not soon."""


def queue_line(cluster: Cluster, run: Json, sleep: Callable[[float], None] = time.sleep) -> str:
    """Return the run's place among the pending Workloads of its queue.

    The order is of priority and queue time, as in `run list`. Other runs do not add requests.
    """
    queue = objects.label(run, naming.QUEUE_NAME)
    if not queue:
        return "it has no queue; its pods start when nodes have room for them"
    why = f"trainyard run why {objects.name(run)} explains why it waits"
    first = f"group 0 of {groups.total(run)} " if groups.has_groups(run) else ""
    run = groups.gangs(run)[0]
    try:
        workload = _own_workload(cluster, run, sleep)
        if workload is None:
            return f"queue {queue}: place not known; {why}"
        if objects.condition_is_true(workload, "Admitted"):
            return f"queue {queue}: {first}admitted"
        return f"queue {queue}: {first}{_place(cluster, run, workload)}; {why}"
    except ForbiddenError:
        return f"queue {queue}: place not known; {why}"


def _own_workload(cluster: Cluster, run: Json, sleep: Callable[[float], None]) -> Json | None:
    """Return the Workload that Kueue made of the run, admitted if it is so soon; None if there is none yet."""
    namespace, uid = str(objects.meta(run)["namespace"]), str(objects.meta(run).get("uid"))
    found: Json | None = None
    for look in range(LOOKS):
        if look:
            sleep(POLL_S)
        mine = cluster.items(collect.WORKLOADS, namespace, f"{collect.JOB_UID}={uid}")
        found = mine[0] if mine else found
        if objects.condition_is_true(found, "Admitted"):
            break
    return found


def _place(cluster: Cluster, run: Json, workload: Json) -> str:
    """Return the place of a run that was not admitted at once."""
    waiting = cluster.items(collect.WORKLOADS, str(objects.meta(run)["namespace"]))
    place = states.places(waiting).get(str(objects.meta(workload).get("uid")))
    return f"place {place[0]} of {place[1]} that wait" if place else "place not known"
