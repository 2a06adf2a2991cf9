"""Readiness of pods, and why the pods of a workload do not run."""

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

_HARMLESS = {"ContainerCreating", "PodInitializing", "Completed"}
_MOST_TROUBLES = 5


def pod(cluster: Cluster, obj: Object) -> Progress:
    """Ready when its condition says so, or when it has succeeded."""
    phase = at(obj, ("status", "phase"))
    if phase == "Succeeded" or is_true(obj, "Ready"):
        return READY
    found = troubles(obj)
    if phase == "Failed":
        return failed(*(found or [f"pod {name_of(obj)} has failed"]))
    return waiting(*(found or [f"pod {name_of(obj)} is {phase or 'not scheduled'}"]))


def troubles(obj: Object) -> list[str]:
    """What keeps a pod from running, one line each, container by container."""
    found = []
    scheduled = condition(obj, "PodScheduled")
    if scheduled.get("status") == "False":
        found.append(f"pod {name_of(obj)} is not scheduled: {explain(scheduled)}")
    for field in ("initContainerStatuses", "containerStatuses"):
        for status in at(obj, ("status", field), []) or []:
            text = _container_trouble(status)
            if text:
                found.append(f"pod {name_of(obj)}, container {status.get('name')}: {text}")
    message = at(obj, ("status", "message"))
    if message and not found:
        found.append(f"pod {name_of(obj)}: {message}")
    return found


def troubles_of(cluster: Cluster, namespace: str, labels: dict[str, str]) -> list[str]:
    """The troubles of the pods with these labels, newest pod first."""
    pods = cluster.list(POD, namespace, labelSelector=selector(labels))
    pods.sort(key=lambda pod: at(pod, ("metadata", "creationTimestamp"), ""), reverse=True)
    return [text for pod in pods for text in troubles(pod)][:_MOST_TROUBLES]


def _container_trouble(status: Object) -> str:
    waiting_for = at(status, ("state", "waiting"), {})
    reason = waiting_for.get("reason")
    if reason and reason not in _HARMLESS:
        return " ".join(f"{reason}: {waiting_for.get('message') or ''}".split()).rstrip(":")
    ended = at(status, ("state", "terminated")) or at(status, ("lastState", "terminated")) or {}
    code = ended.get("exitCode")
    if code:
        detail = " ".join(str(ended.get("message") or "").split())
        return f"exit code {code}, {ended.get('reason') or 'ended'}" + (
            f": {detail}" if detail else ""
        )
    return ""
