"""The current objects of one run, in three requests however many runs there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from infra.domain import naming
from ops import collect, objects, stopped
from ops.cluster import Cluster, ForbiddenError, Kind
from ops.collect import PODS, WORKLOADS, NoSuchRunError
from ops.objects import Json
from ops.runs import states
from ops.runs.listing import RunSummary, summarize
from ops.runs.progress import NO_PROGRESS, Progress

_JOB_UID: Final = "kueue.x-k8s.io/job-uid"
"""Label that Kueue puts on Workloads: the uid of the object that they are for."""


@dataclass(frozen=True, kw_only=True)
class OneRun:
    """A run, its Workload (None: absent or not readable) and its pods."""

    run: Json
    workload: Json | None
    pods: Sequence[Json]

    @property
    def run_id(self) -> str:
        return objects.run_id_of(self.run)

    @property
    def evictions(self) -> int:
        return states.eviction_count(self.workload)

    def summary(self, at: Progress = NO_PROGRESS) -> RunSummary:
        """Return its record, without the place in its queue."""
        workloads = [self.workload] if self.workload else []
        return summarize([self.run], workloads, self.pods, {self.run_id: at})[0]


def read_run(cluster: Cluster, known: Json) -> OneRun:
    """Read a run again. Raises NoSuchRunError if it was deleted, or replaced by another of its name."""
    kind = next(one for one in collect.RUN_KINDS if one.kind == known["kind"])
    namespace, name = str(objects.meta(known)["namespace"]), objects.name(known)
    run = cluster.get(kind, name, namespace)
    if run is None and stopped.is_stopped(known):
        return OneRun(run=known, workload=None, pods=_pods(cluster, known))
    uid = str(objects.meta(known).get("uid"))
    if run is None or str(objects.meta(run).get("uid")) != uid:
        raise NoSuchRunError(f"run {objects.run_id_of(known)}: was deleted")
    run = run | {"kind": kind.kind, "apiVersion": kind.api}
    workloads = _items(cluster, WORKLOADS, namespace, f"{_JOB_UID}={uid}")
    return OneRun(
        run=run,
        workload=next(iter(objects.newest_first(workloads)), None),
        pods=_pods(cluster, run),
    )


def _pods(cluster: Cluster, run: Json) -> list[Json]:
    selector = f"{naming.RUN_ID}={objects.run_id_of(run)}"
    return _items(cluster, PODS, str(objects.meta(run)["namespace"]), selector)


def _items(cluster: Cluster, kind: Kind, namespace: str, selector: str) -> list[Json]:
    try:
        return cluster.items(kind, namespace, selector)
    except ForbiddenError:
        return []
