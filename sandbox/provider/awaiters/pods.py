"""Readiness of pods, and why a workload's pods do not run."""

from __future__ import annotations

from sandbox.provider.awaiters.progress import (
    READY,
    Progress,
    condition,
    explain,
    failed,
    is_true,
    waiting,
)
from sandbox.provider.cluster import Cluster, selector
from sandbox.provider.objects import Kind, Object, at, name_of

POD = Kind("", "v1", "Pod")

_NORMAL_REASONS = {"ContainerCreating", "PodInitializing", "Completed"}
_MAX_PROBLEMS = 5


def pod(cluster: Cluster, obj: Object) -> Progress:
    """Ready when its Ready condition is true, or when it has succeeded."""
    phase = at(obj, ("status", "phase"))
    if phase == "Succeeded" or is_true(obj, "Ready"):
        return READY
    found = pod_problems(obj)
    if phase == "Failed":
        return failed(*(found or [f"pod {name_of(obj)} has failed"]))
    return waiting(*(found or [f"pod {name_of(obj)} is {phase or 'not scheduled'}"]))


def pod_problems(obj: Object) -> list[str]:
    """Return why a pod does not run, one line per cause."""
    found = []
    scheduled = condition(obj, "PodScheduled")
    if scheduled.get("status") == "False":
        found.append(f"pod {name_of(obj)} is not scheduled: {explain(scheduled)}")
    for field in ("initContainerStatuses", "containerStatuses"):
        for status in at(obj, ("status", field), []) or []:
            text = _container_problem(status)
            if text:
                found.append(f"pod {name_of(obj)}, container {status.get('name')}: {text}")
    message = at(obj, ("status", "message"))
    if message and not found:
        found.append(f"pod {name_of(obj)}: {message}")
    return found


def problems_of_pods(cluster: Cluster, namespace: str, labels: dict[str, str]) -> list[str]:
    """Return the problems of the pods with these labels, newest pod first."""
    pods = cluster.list(POD, namespace, labelSelector=selector(labels))
    pods.sort(key=lambda pod: at(pod, ("metadata", "creationTimestamp"), ""), reverse=True)
    return [text for pod in pods for text in pod_problems(pod)][:_MAX_PROBLEMS]


def _container_problem(status: Object) -> str:
    waiting_for = at(status, ("state", "waiting"), {})
    reason = waiting_for.get("reason")
    if reason and reason not in _NORMAL_REASONS:
        return " ".join(f"{reason}: {waiting_for.get('message') or ''}".split()).rstrip(":")
    ended = at(status, ("state", "terminated")) or at(status, ("lastState", "terminated")) or {}
    code = ended.get("exitCode")
    if code:
        detail = " ".join(str(ended.get("message") or "").split())
        return f"exit code {code}, {ended.get('reason') or 'ended'}" + (
            f": {detail}" if detail else ""
        )
    return ""
