"""Diagnose why a Job does not start or complete, from the objects around it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from infra.domain import naming
from ops import objects
from ops.logs import sanitize
from ops.objects import Json

_IMAGE: Final = ("ErrImageNeverPull", "ImagePullBackOff", "InvalidImageName")
_SETUP: Final = ("CreateContainerConfigError", "CreateContainerError")


def progress(job: Json | None, pods: Sequence[Json]) -> str:
    """Return the current state of a Job for progress output."""
    if job is None:
        return "deleted"
    if (job.get("spec") or {}).get("suspend"):
        return "queued"
    counts = Counter(str(objects.status(pod).get("phase", "Pending")).lower() for pod in pods)
    return (
        ", ".join(f"{number} {phase}" for phase, number in sorted(counts.items())) or "no pods yet"
    )


def cannot_start(pods: Sequence[Json]) -> bool:
    """Whether a container can never start."""
    return any(reason in (*_IMAGE, *_SETUP) for _, _, reason, _ in _waiting(pods))


def has_started(pod: Json, container: str) -> bool:
    """Whether a container ever ran and so has a log."""
    found = objects.container(pod, container)
    states = (found.get("state") or {}) | (found.get("lastState") or {})
    return "running" in states or "terminated" in states


def termination_message(pod: Json, container: str) -> str:
    """Return the termination message of a container; empty if there is none."""
    ended = objects.state(objects.container(pod, container), "terminated")
    return str(ended.get("message") or "")


def diagnose(
    job: Json,
    pods: Sequence[Json],
    events: Sequence[Json],
    workload: Json | None,
    waited_s: float | None,
) -> tuple[str, str]:
    """Return cause and remedy. `waited_s`: seconds after which the wait timed out; None: the Job ended."""
    found = (
        _not_started(job, pods, events, workload)
        or _not_placed(pods)
        or _not_running(pods)
        or _exited(pods)
    )
    if found:
        return found
    if waited_s is not None:
        name, namespace = objects.name(job), objects.meta(job)["namespace"]
        return (
            f"it was still running after {waited_s:g} s",
            f"kubectl logs -n {namespace} job/{name} while it runs; raise --timeout to wait longer",
        )
    condition = objects.condition(job, "Failed")
    text = condition.get("message") or condition.get("reason") or "it failed"
    return str(text), f"kubectl describe jobs -n {objects.meta(job)['namespace']}"


def _not_started(
    job: Json, pods: Sequence[Json], events: Sequence[Json], workload: Json | None
) -> tuple[str, str] | None:
    if pods:
        return None
    uid = objects.meta(job).get("uid")
    for event in reversed(events):
        about = event.get("involvedObject") or {}
        if about.get("uid") == uid and event.get("reason") == "FailedCreate":
            return (
                f"its pods are rejected: {event.get('message')}",
                "the message names the quota or the admission policy: docs/security.md",
            )
    if (job.get("spec") or {}).get("suspend"):
        if workload is None:
            return (
                "it is suspended and has no Workload",
                f"check that Kueue runs: kubectl get pods -n {naming.KUEUE_NAMESPACE}",
            )
        reason = objects.condition(workload, "QuotaReserved").get("message") or "no reason given"
        return (
            f"it is queued: {reason}",
            f"kubectl describe {objects.reference(workload)}; free nodes, or try again later",
        )
    return None


def _not_placed(pods: Sequence[Json]) -> tuple[str, str] | None:
    for pod in pods:
        placed = objects.condition(pod, "PodScheduled")
        if placed.get("status") == "False":
            return (
                f"pod/{objects.name(pod)} is unschedulable: {placed.get('message')}",
                f"kubectl get nodes -L {naming.POOL}; the pool requires free nodes with its labels",
            )
    return None


def _not_running(pods: Sequence[Json]) -> tuple[str, str] | None:
    for pod, container, reason, termination_message in _waiting(pods):
        what = f"pod/{pod}: container {container}: {reason}: {termination_message}".rstrip(": ")
        if reason in _IMAGE:
            return (
                what,
                "check that the image exists and nodes may pull it: `images` in the stack file",
            )
        if reason in _SETUP:
            return what, "the message names the missing object; `pulumi up` creates it"
    return None


def _exited(pods: Sequence[Json]) -> tuple[str, str] | None:
    for pod in pods:
        for one in objects.containers(pod):
            ended = objects.state(one, "terminated")
            if ended.get("exitCode"):
                reason = f" ({ended['reason']})" if ended.get("reason") else ""
                message = (
                    sanitize(str(ended.get("message") or "")) or "without a termination message"
                )
                return (
                    f"pod/{objects.name(pod)} exited with {ended['exitCode']}{reason}, {message}",
                    "run it again and follow its log: kubectl logs -f",
                )
    return None


def _waiting(pods: Sequence[Json]) -> Iterator[tuple[str, str, str, str]]:
    """Yield pod, container, reason and message of waiting containers."""
    for pod in pods:
        for one in objects.containers(pod, init=True):
            if waiting := objects.state(one, "waiting"):
                reason, message = waiting.get("reason", ""), waiting.get("message", "")
                yield objects.name(pod), one["name"], str(reason), str(message)
