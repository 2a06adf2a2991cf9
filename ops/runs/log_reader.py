"""Read one container's log line by line, each line once, also across lost connections."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from infra.domain import naming
from ops import groups, logs, objects
from ops.cluster import Cluster, ClusterError
from ops.collect import PODS
from ops.logs import Line
from ops.objects import Json
from ops.snapshot import Snapshot

_FRACTION: Final = re.compile(r"\.(\d+)")
_READ_S: Final = 30.0


@dataclass(kw_only=True)
class LogReader:
    """Remembers what it has returned: each call returns the lines since the last."""

    cluster: Cluster
    namespace: str
    pod: str
    container: str
    tail: int
    """Lines that the first call returns at most."""
    _last: str = field(default="", init=False)
    """Time stamp of the newest line that was returned."""
    _seen: int = field(default=0, init=False)
    """Lines with that time stamp that were returned."""

    @classmethod
    def of(cls, cluster: Cluster, pod: Json, tail: int) -> LogReader:
        """Return a reader of a pod's main container."""
        return cls(
            cluster=cluster,
            namespace=str(objects.meta(pod)["namespace"]),
            pod=objects.name(pod),
            container=main_container(pod),
            tail=tail,
        )

    def read(self) -> list[Line] | None:
        """Return new lines, oldest first; None if the pod is gone. Raises ClusterError."""
        query = [("container", self.container), ("timestamps", "true")]
        # Kubernetes rounds this time down to a second: lines that were returned come again.
        query += (
            [("sinceTime", _FRACTION.sub("", self._last))]
            if self._last
            else [("tailLines", str(self.tail))]
        )
        path = f"{PODS.path(self.namespace, self.pod)}/log"
        try:
            text = self.cluster.text(path, query, _READ_S)
        except ClusterError as error:
            if "is waiting to start" in str(error) or "not available" in str(error):
                return []
            raise
        return None if text is None else self._fresh(logs.parse_lines(text))

    def _fresh(self, lines: Sequence[Line]) -> list[Line]:
        found = [one for one in lines if _key(one.time) >= _key(self._last)]
        same = [one for one in found if one.time == self._last]
        if self._last and same:
            # They come in the same order each time.
            skipped = min(self._seen, len(same))
            found = [*same[skipped:], *(one for one in found if one.time != self._last)]
        if found:
            newest = found[-1].time
            again = sum(one.time == newest for one in found)
            self._seen = again + (self._seen if newest == self._last else 0)
            self._last = newest
        return found


def _key(stamp: str) -> tuple[str, str]:
    """Sort key of a time stamp of any number of digits."""
    fraction = _FRACTION.search(stamp)
    whole = _FRACTION.sub("", stamp)
    return whole, (fraction[1] if fraction else "").ljust(9, "0")


def pod_of_node(pods: Sequence[Json], node_rank: int) -> Json | None:
    """Return the newest pod of a node's rank; rank 0 is also the pod of a run that does not number them."""
    mine = [
        pod
        for pod in objects.newest_first(pods)
        if (objects.label(pod, naming.JOB_INDEX) or "0") == str(node_rank)
    ]
    return mine[0] if mine else None


def pod_of_rank(taken: Snapshot, node_rank: int, group: int | None = None) -> Json | None:
    """Return the newest pod of a node's rank; of a run with groups in `group`, or in the one that leads."""
    if group is None and not groups.has_groups(taken.run):
        return pod_of_node(taken.pods, node_rank)
    return pod_of_group(taken.pods, node_rank, group)


def pod_of_group(pods: Sequence[Json], node_rank: int, group: int | None) -> Json | None:
    """Return the newest pod of a node's rank in a group; None: in the group that most likely leads.

    The longest member of a run leads, reports and saves: that whose first pod has been ready for longest.
    """
    numbers = {number for pod in pods if (number := groups.number_of(pod)) is not None}
    first = {
        number: pod
        for number in sorted(numbers)
        if (pod := pod_of_node([p for p in pods if groups.number_of(p) == number], 0))
    }
    chosen = _leading(first) if group is None else group
    return pod_of_node([pod for pod in pods if groups.number_of(pod) == chosen], node_rank)


def _leading(first: Mapping[int, Json]) -> int:
    """Return the group that leads, by the first pod of each; if none runs, the one that started last."""

    def started(number: int) -> str:
        return str(objects.status(first[number]).get("startTime") or "")

    def ready_since(number: int) -> str:
        return str(objects.condition(first[number], "Ready").get("lastTransitionTime") or "")

    ready = [n for n, pod in first.items() if objects.condition_is_true(pod, "Ready")]
    if ready:
        return min(ready, key=ready_since)
    running = [n for n, pod in first.items() if objects.status(pod).get("phase") == "Running"]
    return min(running, key=started) if running else max(first, key=started, default=-1)


def main_container(pod: Json) -> str:
    """Return the container whose log is the run's: the one that runs now, else the first."""
    status = objects.status(pod)
    starting = [
        one["name"]
        for one in status.get("initContainerStatuses") or []
        if "running" in (one.get("state") or {})
    ]
    started = any(
        (one.get("state") or {}).keys() & {"running", "terminated"}
        for one in objects.containers(pod)
    )
    return str(starting[0] if starting and not started else pod["spec"]["containers"][0]["name"])
