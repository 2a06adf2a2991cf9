"""What a Job has done: the results that its pods printed, or why it does not start or complete. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from infra.domain import naming
from ops import objects
from ops.logs import sanitize
from ops.objects import Json
from ops.snapshot import pluralize

_IMAGE: Final = ("ErrImageNeverPull", "ImagePullBackOff", "InvalidImageName")
_SETUP: Final = ("CreateContainerConfigError", "CreateContainerError")


def progress(job: Json | None, pods: Sequence[Json]) -> str:
    if job is None:
        return "deleted"
    if (job.get("spec") or {}).get("suspend"):
        return "queued"
    counts = Counter(str(objects.status(pod).get("phase", "Pending")).lower() for pod in pods)
    return (
        ", ".join(f"{number} {phase}" for phase, number in sorted(counts.items())) or "no pods yet"
    )


def cannot_start(pods: Sequence[Json]) -> bool:
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


_KEY: Final = "validation"
_FACT_FORMATS: Final[Mapping[str, str]] = {
    "bandwidth_gbps": "{} GB/s",
    "mtu": "MTU {}",
    "restored": "{} restored",
    "tokens_per_s": "{} tokens/s",
}
"""Facts that are printed otherwise than as `NAME VALUE`."""
_COUNT_NOUNS: Final[Mapping[str, str]] = {"runs": "run", "world_size": "rank"}
"""Facts that count things, with the noun."""
_RESERVED_KEYS: Final = (_KEY, "ok", "cause", "remedy", "node")


@dataclass(frozen=True, kw_only=True)
class PodResult:
    ok: bool
    pod: str
    cause: str = ""
    remedy: str = ""
    node: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """All other keys: device, driver, model, cuda, nccl, transport, mtu, interface, world_size, bandwidth_gbps."""

    def text(self, *names: str) -> str:
        """Return those of the named facts that are present, with units, in this order."""
        known = [(name, self.facts.get(name)) for name in names]
        return ", ".join(
            _format_fact(name, value) for name, value in known if value not in (None, "")
        )


def _format_fact(name: str, value: Any) -> str:
    whole = isinstance(value, int)
    if whole and name in _COUNT_NOUNS:
        return pluralize(value, _COUNT_NOUNS[name])
    if whole and name == "bytes":
        return format_bytes(value)
    if whole and name == "memlock":
        return f"memlock {format_bytes(value)}"
    return _FACT_FORMATS.get(name, f"{name} {{}}").format(format_value(value))


def format_bytes(count: float) -> str:
    """Format bytes in the largest fitting decimal unit."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.4g} {unit}"
        count /= 1000
    return f"{count:.4g} TB"


def format_value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else sanitize(str(value))


def parse_log(log: str, pod: str) -> PodResult | None:
    """Return the last validation line of a log; None if there is none."""
    for text in reversed(log.splitlines()):
        if text.startswith("{") and (found := _parse_line(text, pod)):
            return found
    return None


def _parse_line(text: str, pod: str) -> PodResult | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    if not isinstance(found, dict) or _KEY not in found:
        return None
    return PodResult(
        ok=found.get("ok") is True,
        pod=pod,
        cause=sanitize(str(found.get("cause") or "")),
        remedy=sanitize(str(found.get("remedy") or "")),
        node=sanitize(str(found.get("node") or "")),
        facts={key: value for key, value in found.items() if key not in _RESERVED_KEYS},
    )


def shared_facts(lines: Iterable[PodResult]) -> dict[str, Any]:
    """Return the facts with the same value in all results."""
    found = list(lines)
    first: Mapping[str, Any] = found[0].facts if found else {}
    return {
        key: value
        for key, value in first.items()
        if all(line.facts.get(key) == value for line in found)
    }
