"""Find a run by name and collect a snapshot of it and its surroundings."""

from __future__ import annotations

import dataclasses
import datetime as dt
import difflib
from collections.abc import Iterable, Sequence
from typing import Final

from infra.domain import launcher_support, naming
from ops import groups, logs, metrics, names, objects, placement, stopped
from ops.cluster import Cluster, Kind
from ops.metrics import MetricsUnknownError, PrometheusClient, Vitals
from ops.names import Named
from ops.objects import Json
from ops.readable import Reader
from ops.snapshot import Preparation, Snapshot
from ops.symptoms import results
from ops.symptoms.gpus import GPU_NAMESPACE

JOBS: Final = Kind("batch/v1", "jobs", "Job")
RUN_KINDS: Final = tuple(Kind(k.api_version, k.resource, k.kind) for k in launcher_support.KINDS)
"""Object kinds that launchers create."""

PODS: Final = Kind("v1", "pods", "Pod")
CONFIG_MAPS: Final = Kind("v1", "configmaps", "ConfigMap")
EVENTS: Final = Kind("v1", "events", "Event")
NODES: Final = Kind("v1", "nodes", "Node")
NAMESPACES: Final = Kind("v1", "namespaces", "Namespace")
WORKLOADS: Final = Kind(naming.KUEUE_API, "workloads", "Workload")
LOCAL_QUEUES: Final = Kind(naming.KUEUE_API, "localqueues", "LocalQueue")
CLUSTER_QUEUES: Final = Kind(naming.KUEUE_API, "clusterqueues", "ClusterQueue")
COHORTS: Final = Kind(naming.KUEUE_API, "cohorts", "Cohort")
FLAVORS: Final = Kind(naming.KUEUE_API, "resourceflavors", "ResourceFlavor")
PROVISIONING: Final = Kind("autoscaling.x-k8s.io/v1", "provisioningrequests", "ProvisioningRequest")

JOB_UID: Final = "kueue.x-k8s.io/job-uid"
"""Label that Kueue puts on Workloads: the uid of the object that they are for."""


class NoSuchRunError(Exception):
    """No object in the cluster is that run; the text lists the existing runs."""


def list_runs(cluster: Cluster, namespace: str | None = None) -> list[Json]:
    """Return the run objects, newest first, with those of stopped runs as `stopped.run_of` has them.

    The objects of the groups of one run are one, as `groups.merged` has it. Raises ForbiddenError if the caller
    may not list them.
    """
    found = groups.merged(
        item
        for kind in RUN_KINDS
        for item in cluster.items(kind, namespace, naming.RUN_ID)
        if objects.label(item, naming.RUN) and not objects.owner(item)
    )
    there = {(objects.meta(one).get("namespace"), objects.name(one)) for one in found}
    left = [
        one
        for one in stopped_runs(cluster, namespace)
        if (objects.meta(one).get("namespace"), objects.name(one)) not in there
    ]
    return objects.newest_first([*found, *left])


def stopped_runs(cluster: Cluster, namespace: str | None) -> list[Json]:
    """Return the runs that `run resume` continues, newest first; none if the caller may not list ConfigMaps."""
    files = Reader(cluster).items(CONFIG_MAPS, namespace, stopped.SELECTOR)
    found = [run for one in files if (run := stopped.run_of(one)) is not None]
    return objects.newest_first(found)


def find_run(known: Sequence[Json], wanted: str) -> Json:
    """Return the run with this id, else the newest of this name.

    Raises NoSuchRunError; AmbiguousNameError if several teams have one.
    """
    found = names.find("run", known, wanted, _named)
    if found is None:
        raise NoSuchRunError(_no_such_run(known, wanted))
    return found


def find_stopped(known: Sequence[Json], wanted: str) -> Json:
    """Return one of `stopped_runs`, found as by `find_run`."""
    found = names.find("stopped run", known, wanted, _named)
    if found is None:
        existing = ", ".join(objects.name(one) for one in known) or "none"
        raise NoSuchRunError(
            f"run {wanted!r}: is not stopped; stopped runs: {existing}; `pulumi up` starts those of a stack again"
        )
    return found


def _named(run: Json) -> Named:
    return Named(
        id=objects.label(run, naming.RUN_ID),
        name=objects.label(run, naming.RUN),
        namespace=str(objects.meta(run).get("namespace") or ""),
    )


def _no_such_run(known: Sequence[Json], wanted: str) -> str:
    ids = [objects.label(item, naming.RUN_ID) for item in known]
    if not ids:
        return f"run {wanted!r}: not found; there are no runs; `pulumi up` launches those in `runs`"
    names = {objects.label(item, naming.RUN) for item in known}
    near = difflib.get_close_matches(wanted, [*sorted(names), *ids], n=1)
    hint = f"did you mean {near[0]}?" if near else "use one of these"
    return f"run {wanted!r}: not found; existing runs: {', '.join(ids)}; {hint}"


def take_snapshot(
    cluster: Cluster,
    run: Json,
    now: dt.datetime,
    prometheus: PrometheusClient | None = None,
) -> Snapshot:
    """Read everything about a run that the caller may read. `prometheus` None: no metrics."""
    reader = Reader(cluster)
    namespace = str(objects.meta(run)["namespace"])
    run_id = objects.label(run, naming.RUN_ID)
    mine = f"{naming.RUN_ID}={run_id}"
    workloads = reader.items(WORKLOADS)
    if "workloads" in reader.hidden:
        reader.hidden.discard("workloads")
        workloads = reader.items(WORKLOADS, namespace)
    taken = Snapshot(
        run=run,
        now=now,
        workload=objects.workload_of(run, workloads),
        workloads=workloads,
        jobs=[job for job in reader.items(JOBS, namespace, mine) if objects.owner(job)],
        pods=reader.items(PODS, namespace, mine),
        events=reader.items(EVENTS, namespace),
        nodes=reader.items(NODES),
        provisioning=reader.items(PROVISIONING, namespace),
    )
    taken = dataclasses.replace(
        _with_queues(reader, taken),
        preparations=_preparations(reader, taken),
        results_pod=_results_pod(reader, namespace),
    )
    return _enrich(reader, taken, prometheus)


def read_run(cluster: Cluster, known: Json) -> Snapshot:
    """Read a run again, without its surroundings, in three requests however many runs and groups there are.

    Raises NoSuchRunError if it was deleted, or replaced by another of its name.
    """
    namespace, run_id = str(objects.meta(known)["namespace"]), objects.run_id_of(known)
    run = _current_run(cluster, known) or next(
        (one for one in stopped_runs(cluster, namespace) if objects.run_id_of(one) == run_id), None
    )
    if run is None:
        raise NoSuchRunError(f"run {run_id}: was deleted")
    reader = Reader(cluster)
    uids = ",".join(sorted(_uids(run) - {"None"}))
    workloads = reader.items(WORKLOADS, namespace, f"{JOB_UID} in ({uids})") if uids else []
    return Snapshot(
        run=run,
        now=dt.datetime.now(dt.UTC),
        workload=objects.workload_of(run, workloads),
        workloads=workloads,
        pods=reader.items(PODS, namespace, f"{naming.RUN_ID}={run_id}"),
        hidden=frozenset(reader.hidden),
    )


def _current_run(cluster: Cluster, known: Json) -> Json | None:
    """Return the run's object as it is now; None if it is gone, or another of its name is there."""
    namespace = str(objects.meta(known)["namespace"])
    kind = next(one for one in RUN_KINDS if one.kind == known["kind"])
    if groups.has_groups(known):
        mine = f"{naming.RUN_ID}={objects.run_id_of(known)}"
        found = groups.merged(cluster.items(kind, namespace, mine))
    else:
        one = cluster.get(kind, objects.name(known), namespace)
        found = [] if one is None else [one | {"kind": kind.kind, "apiVersion": kind.api}]
    return next((run for run in found if _uids(known) & _uids(run)), None)


def _uids(run: Json) -> set[str]:
    return {str(objects.meta(one).get("uid")) for one in groups.gangs(run)}


def _with_queues(reader: Reader, taken: Snapshot) -> Snapshot:
    local_queues = reader.items(LOCAL_QUEUES, taken.namespace)
    local_queue = _find_by_name(local_queues, taken.queue_name)
    cluster_queues = reader.items(CLUSTER_QUEUES)
    behind = ((local_queue or {}).get("spec") or {}).get("clusterQueue", "")
    cluster_queue = _find_by_name(cluster_queues, behind)
    cohort = ((cluster_queue or {}).get("spec") or {}).get("cohortName", "")
    return dataclasses.replace(
        taken,
        local_queue=local_queue,
        cluster_queue=cluster_queue,
        cohort=_find_by_name(reader.items(COHORTS), cohort),
        cluster_queues=[
            q for q in cluster_queues if cohort and q["spec"].get("cohortName") == cohort
        ],
        flavors=reader.items(FLAVORS),
    )


def _preparations(reader: Reader, taken: Snapshot) -> list[Preparation]:
    """Return the Jobs that the run waits for, with their pods and logs while they matter."""
    names = taken.preparation_names
    if not names:
        return []
    components = f"{naming.COMPONENT} in ({naming.DATASET_COMPONENT},{naming.WEIGHTS_COMPONENT})"
    known = reader.items(JOBS, taken.namespace, components)
    found = []
    for container, name in names.items():
        job = _find_by_name(known, name)
        one = Preparation(container=container, name=name, job=job)
        if job is not None and not objects.condition_is_true(job, "Complete"):
            pods = reader.items(PODS, taken.namespace, f"batch.kubernetes.io/job-name={name}")
            reading = logs.read_logs(reader.cluster, taken.namespace, pods) if pods else None
            one = dataclasses.replace(
                one, pods=objects.newest_first(pods), logs=reading.logs if reading else ()
            )
        found.append(one)
    return found


def _results_pod(reader: Reader, namespace: str) -> Json | None:
    selector = f"{naming.COMPONENT}={naming.RESULTS_COPY}"
    pods = Reader(reader.cluster).items(PODS, namespace, selector)
    return next((pod for pod in objects.newest_first(pods) if results.finished(pod)), None)


def _enrich(reader: Reader, taken: Snapshot, prometheus: PrometheusClient | None) -> Snapshot:
    """Add what is read only where it can explain something: logs, metrics, other pods."""
    stuck = any(
        objects.condition(pod, "PodScheduled").get("status") == "False" for pod in taken.pods
    )
    gpus_missing = any(placement.gpu_not_visible(node) for node in taken.nodes)
    reading = logs.read_logs(reader.cluster, taken.namespace, taken.pods) if taken.pods else None
    vitals, unknown = _read_vitals(taken, prometheus)
    # Nothing is missing where these may not be read.
    others = Reader(reader.cluster)
    hidden = reader.hidden | ({"pods/log"} if reading and reading.forbidden else set())
    gaps = [gap for gap in (reading.gap if reading else "", unknown) if gap]
    return dataclasses.replace(
        taken,
        others_pods=others.items(PODS, None, naming.RUN_ID) if stuck else (),
        gpu_pods=others.items(PODS, GPU_NAMESPACE) if gpus_missing else (),
        logs=reading.logs if reading else (),
        vitals=vitals,
        gaps=gaps,
        hidden=frozenset(hidden),
    )


def _read_vitals(taken: Snapshot, prometheus: PrometheusClient | None) -> tuple[Vitals | None, str]:
    """Return the metrics of a run that has pods, or why they are unknown."""
    if prometheus is None or not taken.pods:
        return None, ""
    nodes = {str(pod["spec"].get("nodeName") or "") for pod in taken.pods} - {""}
    name = objects.label(taken.run, naming.RUN)
    try:
        found = metrics.vitals_for(prometheus, taken.run_id, name, taken.namespace, sorted(nodes))
    except MetricsUnknownError as error:
        return None, f"no metrics: {error}; pass a Prometheus with --prometheus"
    unmeasured = f"no metrics: {prometheus.place} has no series of this run"
    return found, "" if found.known else unmeasured


def _find_by_name(items: Iterable[Json], wanted: str) -> Json | None:
    return next((item for item in items if objects.name(item) == wanted), None)
