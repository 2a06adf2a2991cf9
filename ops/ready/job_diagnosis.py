"""Why a Job of a climb does not end well, from the objects around it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from ops import objects
from ops.logs import sanitize
from ops.objects import Json

_IMAGE: Final = ("ErrImageNeverPull", "ImagePullBackOff", "InvalidImageName")
_SETUP: Final = ("CreateContainerConfigError", "CreateContainerError")


def progress(job: Json | None, pods: Sequence[Json]) -> str:
    """Where it is, for who watches."""
    if job is None:
        return "is gone"
    if (job.get("spec") or {}).get("suspend"):
        return "waits in its queue"
    counts = Counter(str(objects.status(pod).get("phase", "Pending")).lower() for pod in pods)
    return (
        ", ".join(f"{number} {phase}" for phase, number in sorted(counts.items())) or "has no pods"
    )


def cannot_start(pods: Sequence[Json]) -> bool:
    """Whether a container can never start, however long one waits."""
    return any(reason in (*_IMAGE, *_SETUP) for _, _, reason, _ in _waiting(pods))


def has_started(pod: Json, container: str) -> bool:
    """Whether a container ever ran, so that it has a log."""
    for one in objects.status(pod).get("containerStatuses") or []:
        if one["name"] == container:
            states = (one.get("state") or {}) | (one.get("lastState") or {})
            return "running" in states or "terminated" in states
    return False


def termination_message(pod: Json, container: str) -> str:
    """What a container that ended left in its pod's status."""
    for one in objects.status(pod).get("containerStatuses") or []:
        if one["name"] == container:
            return str(((one.get("state") or {}).get("terminated") or {}).get("message") or "")
    return ""


def diagnose(
    job: Json,
    pods: Sequence[Json],
    events: Sequence[Json],
    workload: Json | None,
    waited_s: float | None,
) -> tuple[str, str]:
    """Cause and remedy. `waited_s`: it did not end within so many seconds; None: it ended."""
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
            f"it still ran after {waited_s:g} s",
            f"kubectl logs -n {namespace} job/{name} while it runs; --timeout waits longer",
        )
    condition = objects.condition(job, "Failed")
    text = condition.get("message") or condition.get("reason") or "it failed"
    return str(
        text
    ), f"kubectl describe job -n {objects.meta(job)['namespace']} of the same template"


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
                f"its pods are refused: {event.get('message')}",
                "the message names the quota or the policy; docs/security.md says what they hold",
            )
    if (job.get("spec") or {}).get("suspend"):
        if workload is None:
            return (
                "it is suspended, and nothing queues it",
                "is Kueue running? kubectl get pods -n kueue-system",
            )
        reason = objects.condition(workload, "QuotaReserved").get("message") or "nothing said why"
        return (
            f"it waits in its queue: {reason}",
            f"kubectl describe {objects.reference(workload)}; free nodes, or ask again later",
        )
    return None


def _not_placed(pods: Sequence[Json]) -> tuple[str, str] | None:
    for pod in pods:
        placed = objects.condition(pod, "PodScheduled")
        if placed.get("status") == "False":
            return (
                f"pod/{objects.name(pod)} finds no node: {placed.get('message')}",
                "kubectl get nodes -L trainyard.dev/pool; the pool needs free nodes with its labels",
            )
    return None


def _not_running(pods: Sequence[Json]) -> tuple[str, str] | None:
    for pod, container, reason, termination_message in _waiting(pods):
        what = f"pod/{pod}: container {container}: {reason}: {termination_message}".rstrip(": ")
        if reason in _IMAGE:
            return what, "is the image there, and may nodes pull it? `images` in the stack file"
        if reason in _SETUP:
            return what, "the message names what is missing; `pulumi up` makes it anew"
    return None


def _exited(pods: Sequence[Json]) -> tuple[str, str] | None:
    for pod in pods:
        for one in objects.status(pod).get("containerStatuses") or []:
            ended = (one.get("state") or {}).get("terminated") or {}
            if ended.get("exitCode"):
                reason = f" ({ended['reason']})" if ended.get("reason") else ""
                said = sanitize(str(ended.get("message") or "")) or "and said nothing of why"
                return (
                    f"pod/{objects.name(pod)} exited with {ended['exitCode']}{reason}, {said}",
                    "run it again and read its log: kubectl logs -f, while it runs",
                )
    return None


def _waiting(pods: Sequence[Json]) -> Iterator[tuple[str, str, str, str]]:
    """Pod, container, reason and message of containers that have not started."""
    for pod in pods:
        status = objects.status(pod)
        for key in ("initContainerStatuses", "containerStatuses"):
            for one in status.get(key) or []:
                if waiting := (one.get("state") or {}).get("waiting"):
                    yield (
                        objects.name(pod),
                        one["name"],
                        str(waiting.get("reason", "")),
                        str(waiting.get("message", "")),
                    )
