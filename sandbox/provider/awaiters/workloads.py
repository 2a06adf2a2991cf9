"""Readiness of Deployments, StatefulSets, DaemonSets, ReplicationControllers and Jobs."""

from __future__ import annotations

from sandbox.provider.awaiters.pods import problems_of_pods
from sandbox.provider.awaiters.progress import (
    READY,
    Progress,
    condition,
    explain,
    failed,
    is_observed,
    is_true,
    waiting,
)
from sandbox.provider.cluster import Cluster
from sandbox.provider.objects import Object, at, name_of, namespace_of


def deployment(cluster: Cluster, obj: Object) -> Progress:
    """The newest revision is fully rolled out and available."""
    wanted = at(obj, ("spec", "replicas"), 1)
    progressing = condition(obj, "Progressing")
    if progressing.get("reason") == "ProgressDeadlineExceeded":
        return failed(explain(progressing), *_pods(cluster, obj))
    counts = _counts(obj, "updatedReplicas", "availableReplicas", "replicas")
    if is_observed(obj) and counts == [wanted, wanted, wanted]:
        return READY
    return waiting(f"{counts[1]} of {wanted} replicas are available", *_pods(cluster, obj))


def stateful_set(cluster: Cluster, obj: Object) -> Progress:
    """All replicas are ready, and of the newest revision where updates roll by themselves."""
    wanted = at(obj, ("spec", "replicas"), 1)
    ready, updated = _counts(obj, "readyReplicas", "updatedReplicas")
    rolling = at(obj, ("spec", "updateStrategy", "type"), "RollingUpdate") == "RollingUpdate"
    partition = at(obj, ("spec", "updateStrategy", "rollingUpdate", "partition"), 0)
    current = not rolling or partition or updated >= wanted
    if is_observed(obj) and ready >= wanted and current:
        return READY
    return waiting(f"{ready} of {wanted} replicas are ready", *_pods(cluster, obj))


def daemon_set(cluster: Cluster, obj: Object) -> Progress:
    """Every node that should run a pod of the newest revision has an available one."""
    wanted, updated, available = _counts(
        obj, "desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable"
    )
    if at(obj, ("spec", "updateStrategy", "type")) == "OnDelete":
        updated = wanted
    if is_observed(obj) and available >= wanted and updated >= wanted:
        return READY
    return waiting(f"{available} of {wanted} nodes run it", *_pods(cluster, obj))


def replication_controller(cluster: Cluster, obj: Object) -> Progress:
    """All replicas are available."""
    wanted = at(obj, ("spec", "replicas"), 1)
    (available,) = _counts(obj, "availableReplicas")
    if is_observed(obj) and available >= wanted:
        return READY
    return waiting(f"{available} of {wanted} replicas are available")


def job(cluster: Cluster, obj: Object) -> Progress:
    """The job has completed."""
    if is_true(obj, "Complete"):
        return READY
    pods = problems_of_pods(
        cluster, namespace_of(obj), {"batch.kubernetes.io/job-name": name_of(obj)}
    )
    if is_true(obj, "Failed"):
        return failed(f"the job has failed: {explain(condition(obj, 'Failed'))}", *pods)
    succeeded, active = _counts(obj, "succeeded", "active")
    wanted = at(obj, ("spec", "completions"), 1)
    state = "suspended" if at(obj, ("spec", "suspend")) else f"{active} active"
    return waiting(f"{succeeded} of {wanted} pods have succeeded, {state}", *pods)


def _counts(obj: Object, *fields: str) -> list[int]:
    return [int(at(obj, ("status", field), 0) or 0) for field in fields]


def _pods(cluster: Cluster, obj: Object) -> list[str]:
    labels = at(obj, ("spec", "selector", "matchLabels"))
    return problems_of_pods(cluster, namespace_of(obj), labels) if labels else []
