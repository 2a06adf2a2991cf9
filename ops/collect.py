"""From a run's name to a snapshot of it and of all that surrounds it."""

from __future__ import annotations

import datetime as dt
import difflib
from collections.abc import Iterable, Sequence
from typing import Final

from infra import naming
from ops import objects
from ops.cluster import Cluster, ForbiddenError, Kind
from ops.objects import Json
from ops.snapshot import Snapshot

JOBS: Final = Kind("batch/v1", "jobs", "Job")
RUN_KINDS: Final = (
    Kind("jobset.x-k8s.io/v1alpha2", "jobsets", "JobSet"),
    JOBS,
    Kind("trainer.kubeflow.org/v1alpha1", "trainjobs", "TrainJob"),
    Kind("kubeflow.org/v1", "pytorchjobs", "PyTorchJob"),
    Kind("kubeflow.org/v2beta1", "mpijobs", "MPIJob"),
)
"""What launchers make of a run."""

PODS: Final = Kind("v1", "pods", "Pod")
EVENTS: Final = Kind("v1", "events", "Event")
NODES: Final = Kind("v1", "nodes", "Node")
WORKLOADS: Final = Kind(naming.KUEUE_API, "workloads", "Workload")
LOCAL_QUEUES: Final = Kind(naming.KUEUE_API, "localqueues", "LocalQueue")
CLUSTER_QUEUES: Final = Kind(naming.KUEUE_API, "clusterqueues", "ClusterQueue")
COHORTS: Final = Kind(naming.KUEUE_API, "cohorts", "Cohort")
FLAVORS: Final = Kind(naming.KUEUE_API, "resourceflavors", "ResourceFlavor")
PROVISIONING: Final = Kind("autoscaling.x-k8s.io/v1", "provisioningrequests", "ProvisioningRequest")


class NoSuchRunError(Exception):
    """No object in the cluster is that run; the text says which runs there are."""


def runs(cluster: Cluster, namespace: str | None = None) -> list[Json]:
    """Objects that are runs, the newest first.

    Raises ForbiddenError where the caller may not look at all of this.
    """
    found = [
        item
        for kind in RUN_KINDS
        for item in cluster.items(kind, namespace, naming.RUN_ID)
        if objects.label(item, naming.RUN) and not objects.owner(item)
    ]
    return objects.newest(found)


def find(known: Sequence[Json], wanted: str) -> Json:
    """The run with this id, else the newest of this name. Raises NoSuchRunError."""
    for key in (naming.RUN_ID, naming.RUN):
        for item in known:
            if objects.label(item, key) == wanted:
                return item
    raise NoSuchRunError(_no_such_run(known, wanted))


def _no_such_run(known: Sequence[Json], wanted: str) -> str:
    ids = [objects.label(item, naming.RUN_ID) for item in known]
    if not ids:
        return f"no run {wanted!r}: there are no runs here; `pulumi up` launches those of `runs`"
    names = {objects.label(item, naming.RUN) for item in known}
    near = difflib.get_close_matches(wanted, [*sorted(names), *ids], n=1)
    hint = f"; did you mean {near[0]}?" if near else "."
    return f"no run {wanted!r}{hint} There are: {', '.join(ids)}"


def snapshot(cluster: Cluster, run: Json, now: dt.datetime) -> Snapshot:
    """All that can be read of a run at this moment."""
    reader = _Reader(cluster)
    namespace = str(objects.meta(run)["namespace"])
    run_id = objects.label(run, naming.RUN_ID)
    mine = f"{naming.RUN_ID}={run_id}"
    workloads = reader.items(WORKLOADS)
    if "workloads" in reader.hidden:
        reader.hidden.discard("workloads")
        workloads = reader.items(WORKLOADS, namespace)
    local_queues = reader.items(LOCAL_QUEUES, namespace)
    local_queue = _named(local_queues, objects.label(run, naming.QUEUE_NAME))
    cluster_queues = reader.items(CLUSTER_QUEUES)
    behind = ((local_queue or {}).get("spec") or {}).get("clusterQueue", "")
    cluster_queue = _named(cluster_queues, behind)
    cohort = ((cluster_queue or {}).get("spec") or {}).get("cohortName", "")
    return Snapshot(
        run=run,
        now=now,
        workload=_workload_of(run, workloads),
        local_queue=local_queue,
        cluster_queue=cluster_queue,
        cohort=_named(reader.items(COHORTS), cohort),
        cluster_queues=[
            q for q in cluster_queues if cohort and q["spec"].get("cohortName") == cohort
        ],
        workloads=workloads,
        flavors=reader.items(FLAVORS),
        jobs=[job for job in reader.items(JOBS, namespace, mine) if objects.owner(job)],
        pods=reader.items(PODS, namespace, mine),
        events=reader.items(EVENTS, namespace),
        nodes=reader.items(NODES),
        provisioning=reader.items(PROVISIONING, namespace),
        hidden=frozenset(reader.hidden),
    )


class _Reader:
    """Lists, and notes what may not be read."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.hidden: set[str] = set()

    def items(self, kind: Kind, namespace: str | None = None, selector: str = "") -> list[Json]:
        try:
            return self._cluster.items(kind, namespace, selector)
        except ForbiddenError:
            self.hidden.add(kind.plural)
            return []


def _named(items: Iterable[Json], wanted: str) -> Json | None:
    return next((item for item in items if objects.name(item) == wanted), None)


def _workload_of(run: Json, workloads: Iterable[Json]) -> Json | None:
    """The newest Workload of this very object: an older one may still be leaving."""
    uid = str(objects.meta(run).get("uid"))
    mine = [w for w in workloads if objects.owned_by(w, uid)]
    return next(iter(objects.newest(mine)), None)
