"""The current objects of one run, in three requests however many runs and groups there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from infra.domain import naming
from ops import collect, groups, objects, stopped
from ops.cluster import Cluster
from ops.collect import PODS, WORKLOADS, NoSuchRunError
from ops.objects import Json
from ops.readable import Reader
from ops.runs import states
from ops.runs.listing import RunSummary, summarize
from ops.runs.log_reader import pod_of_group, pod_of_node
from ops.runs.progress import NO_PROGRESS, Progress

_JOB_UID: Final = "kueue.x-k8s.io/job-uid"
"""Label that Kueue puts on Workloads: the uid of the object that they are for."""


@dataclass(frozen=True, kw_only=True)
class OneRun:
    """A run, its Workloads (none where absent or not readable) and its pods."""

    run: Json
    workloads: Sequence[Json]
    """Newest first."""
    pods: Sequence[Json]

    @property
    def run_id(self) -> str:
        return objects.run_id_of(self.run)

    def attempt_of(self, pod: Json) -> int:
        """Return the attempt that a pod belongs to, from 1: of its group, in a run with groups."""
        number = groups.number_of(pod)
        mine = [one for one in groups.gangs(self.run) if groups.number_of(one) == number]
        workload = objects.workload_of(mine[0], self.workloads) if mine else None
        return states.attempt_of_pod(pod, workload)

    def pod_of_node(self, node_rank: int, group: int | None = None) -> Json | None:
        """Return the newest pod of a node's rank; of a run with groups in `group`, or in the one that leads."""
        if group is None and not groups.has_groups(self.run):
            return pod_of_node(self.pods, node_rank)
        return pod_of_group(self.pods, node_rank, group)

    def summary(self, at: Progress = NO_PROGRESS) -> RunSummary:
        """Return its record, without the place in its queue."""
        return summarize([self.run], self.workloads, self.pods, {self.run_id: at})[0]


def read_run(cluster: Cluster, known: Json) -> OneRun:
    """Read a run again. Raises NoSuchRunError if it was deleted, or replaced by another of its name."""
    namespace, mine = str(objects.meta(known)["namespace"]), _selector(known)
    reader = Reader(cluster)
    run = current_run(cluster, known)
    if run is None and stopped.is_stopped(known):
        return OneRun(run=known, workloads=(), pods=reader.items(PODS, namespace, mine))
    if run is None:
        raise NoSuchRunError(f"run {objects.run_id_of(known)}: was deleted")
    uids = ",".join(str(objects.meta(one).get("uid")) for one in groups.gangs(run))
    workloads = reader.items(WORKLOADS, namespace, f"{_JOB_UID} in ({uids})")
    return OneRun(
        run=run,
        workloads=objects.newest_first(workloads),
        pods=reader.items(PODS, namespace, mine),
    )


def current_run(cluster: Cluster, known: Json) -> Json | None:
    """Return the run's object as it is now; None if it is gone, or another of its name is there."""
    namespace = str(objects.meta(known)["namespace"])
    kind = next(one for one in collect.RUN_KINDS if one.kind == known["kind"])
    if groups.has_groups(known):
        found = groups.merged(cluster.items(kind, namespace, _selector(known)))
    else:
        one = cluster.get(kind, objects.name(known), namespace)
        found = [] if one is None else [one | {"kind": kind.kind, "apiVersion": kind.api}]
    return next((run for run in found if _uids(known) & _uids(run)), None)


def _uids(run: Json) -> set[str]:
    return {str(objects.meta(one).get("uid")) for one in groups.gangs(run)}


def _selector(run: Json) -> str:
    return f"{naming.RUN_ID}={objects.run_id_of(run)}"
