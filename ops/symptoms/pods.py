"""Admitted runs: pods that are rejected, cannot start or restart, and runs that train."""

from __future__ import annotations

from collections import Counter
from typing import Final

from infra.domain import naming
from ops import objects
from ops.objects import Json
from ops.runs import exits
from ops.runs.progress import points_from_log
from ops.snapshot import Snapshot, Symptom, Verdict, pluralize
from ops.symptoms import terminal_states
from trainyard.contract import EXIT_REPLACE_POD

_IMAGE: Final = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
)
_SETUP: Final = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
_CREATE_FAILURES: Final = ("FailedCreate", "JobCreationFailed")
"""Event reasons of Jobs and of JobSets."""
_PULLS: Final = ("Pulling", "Pulled")
PULL_S: Final = 120.0
"""Seconds after which pulling an image is worth a word."""
_VOLUME_EVENTS: Final = ("FailedMount", "FailedAttachVolume")


def creation_rejected(snapshot: Snapshot) -> Verdict | None:
    if not snapshot.admitted or snapshot.live_pods:
        return None
    events = snapshot.events_of(snapshot.run, *snapshot.jobs)
    refusals = [e for e in events if e.get("reason") in _CREATE_FAILURES]
    if not refusals:
        return None
    return Verdict(
        symptom="pods-refused",
        headline="is admitted, but a policy or ResourceQuota of the namespace rejects its pods",
        evidence=(f"{_subject(refusals[-1])}: {refusals[-1].get('message')}",),
        remedy=(
            "the message names the policy or quota; correct the run file and raise `version` (a"
            " launched run cannot be changed)",
            f"kubectl get resourcequota,limitrange -n {snapshot.namespace}",
        ),
    )


def image_pull(snapshot: Snapshot) -> Verdict | None:
    for pod, container, waiting in _waiting(snapshot):
        if waiting.get("reason") in _IMAGE:
            return Verdict(
                symptom="image",
                headline=f"cannot start: the image of container {container['name']} cannot be pulled",
                evidence=(
                    f"{objects.reference(pod)}: {waiting['reason']}: {waiting.get('message', '')}",
                    f"{objects.reference(pod)}: {container.get('image')}",
                ),
                remedy=(
                    "check that the registry has the digest and that nodes may pull it; `images` in"
                    " the stack file sets the image of runs",
                ),
            )
    return None


def image_pulling(snapshot: Snapshot) -> Verdict | None:
    for pod in snapshot.live_pods:
        found = [e for e in snapshot.events_of(pod) if e.get("reason") in _PULLS]
        began = objects.time(found[-1].get("lastTimestamp")) if found else None
        pulls = began is not None and found[-1]["reason"] == _PULLS[0]
        if began is None or not pulls or (snapshot.now - began).total_seconds() < PULL_S:
            continue
        return Verdict(
            symptom="pulling-image",
            headline=f"has been pulling its image for {snapshot.ago(found[-1]['lastTimestamp'])}",
            evidence=(f"{objects.reference(pod)}: {found[-1].get('message')}",),
            remedy=(
                "a new node pulls the whole image: make it smaller, or keep nodes (min of the pool)",
                "Kueue queues a gang again whose pods are not ready in time; its nodes keep what they have pulled",
            ),
        )
    return None


def container_setup(snapshot: Snapshot) -> Verdict | None:
    for pod, container, waiting in _waiting(snapshot):
        if waiting.get("reason") in _SETUP:
            line = f"{objects.reference(pod)}: {waiting['reason']}: {waiting.get('message', '')}"
            return _setup_verdict(f"container {container['name']} cannot be created", line)
    pending = [p for p in snapshot.live_pods if objects.status(p).get("phase") == "Pending"]
    for event in reversed(snapshot.events_of(*pending)):
        if event.get("reason") in _VOLUME_EVENTS:
            return _setup_verdict(
                "a volume cannot be mounted", f"{_subject(event)}: {event['message']}"
            )
    return None


def _setup_verdict(what: str, line: str) -> Verdict:
    return Verdict(
        symptom="setup",
        headline=f"cannot start: {what}",
        evidence=(line,),
        remedy=("the message names what is missing; `pulumi up` creates what the stack owns",),
    )


def restarting(snapshot: Snapshot) -> Verdict | None:
    first = exits.first_exit(snapshot)
    if first is None or not terminal_states.failure_mode(snapshot):
        return None
    most = ((snapshot.run.get("spec") or {}).get("failurePolicy") or {}).get("maxRestarts")
    pluralize = objects.status(snapshot.run).get("restartsCountTowardsMax") or 0
    limit = f", {pluralize} of {most} restarts used" if most is not None else ""
    cause = (
        "the ranks failed before their first step, and the pod is replaced"
        if first.code == EXIT_REPLACE_POD
        else f"the last attempt failed with exit code {first.code}"
    )
    return Verdict(
        symptom="restarting",
        headline=f"restarts: {cause}{limit}",
        evidence=(first.evidence, *terminal_states.log_tail(snapshot, first)),
        remedy=tuple(terminal_states.log_commands(snapshot, first)),
    )


def starting(snapshot: Snapshot) -> Verdict | None:
    if not snapshot.admitted or snapshot.is_training:
        return None
    ready = objects.condition(snapshot.workload, "PodsReady")
    pods = snapshot.live_pods
    waiting = [p for p in pods if not objects.condition_is_true(p, "Ready")]
    if not snapshot.queue_name:
        return _not_ready_unqueued(snapshot, pods, waiting)
    since = objects.condition(snapshot.workload, "Admitted").get("lastTransitionTime")
    return Verdict(
        symptom="not-ready",
        headline=f"was admitted {snapshot.ago(since)} ago and is not ready yet:"
        f" {len(pods) - len(waiting)} of {snapshot.expected_size} pods are ready",
        evidence=(
            *(f"{objects.reference(p)}: {_pod_state(p)}" for p in waiting),
            *(
                [f"{objects.reference(snapshot.workload or {})}: {ready['message']}"]
                if ready
                else []
            ),
        ),
        remedy=(
            "wait: Kueue requeues a gang whose pods are not ready in time",
            *([f"kubectl describe {objects.reference(waiting[0])}"] if waiting else []),
        ),
    )


def _not_ready_unqueued(snapshot: Snapshot, pods: list[Json], waiting: list[Json]) -> Verdict:
    """As `starting`, for a run that Kueue does not queue."""
    since = objects.meta(snapshot.run).get("creationTimestamp")
    return Verdict(
        symptom="not-ready",
        headline=f"was created {snapshot.ago(since)} ago and is not ready yet:"
        f" {len(pods) - len(waiting)} of {pluralize(len(pods), 'pod')} ready",
        evidence=tuple(f"{objects.reference(p)}: {_pod_state(p)}" for p in waiting),
        remedy=(
            f"scheduler of its gang: {snapshot.other_scheduler or 'none'};"
            f" kubectl describe podgroups,pods -n {snapshot.namespace}"
            f" -l {naming.RUN_ID}={snapshot.run_id}",
        ),
    )


def running(snapshot: Snapshot) -> Verdict | None:
    pods = snapshot.live_pods
    if not snapshot.is_training:
        return None
    starts = [str(objects.status(p).get("startTime") or "") for p in pods]
    nodes = Counter(str(p["spec"].get("nodeName", "")) for p in pods)
    place = f"for {snapshot.ago(max(starts))} on {', '.join(sorted(nodes))}"
    return Verdict(
        symptom="running",
        headline=f"has trained {place}"
        if _has_made_a_step(snapshot)
        else f"has run {place}; no step of it is known yet",
        evidence=tuple(f"{objects.reference(p)}: {_pod_state(p)}" for p in pods),
        remedy=(f"kubectl logs -n {snapshot.namespace} {objects.name(pods[0])} -f",),
    )


def _has_made_a_step(snapshot: Snapshot) -> bool:
    vitals = snapshot.vitals
    measured = vitals is not None and bool(vitals.reported or vitals.steps_per_s)
    return measured or any(points_from_log(one.lines) for one in snapshot.logs if not one.previous)


def unknown(snapshot: Snapshot) -> Verdict:
    """No symptom matches: report the conditions of the run and its pods."""
    pods = [f"{objects.reference(p)}: {_pod_state(p)}" for p in snapshot.pods]
    conditions = [
        f"{objects.reference(item)}: {c['type']} is {c['status']}: {c.get('message', '')}"
        for item in (snapshot.run, snapshot.workload)
        if item is not None
        for c in objects.status(item).get("conditions") or []
    ]
    return Verdict(
        symptom="unknown",
        headline="is in an unrecognized state",
        evidence=(*conditions, *pods),
        remedy=(f"kubectl describe {objects.reference(snapshot.run)}",),
    )


def _waiting(snapshot: Snapshot) -> list[tuple[Json, Json, Json]]:
    """Return pod, container status and waiting state of each waiting container."""
    return [
        (pod, one, waiting)
        for pod in snapshot.live_pods
        for one in objects.containers(pod, init=True)
        if (waiting := objects.state(one, "waiting"))
    ]


def _pod_state(pod: Json) -> str:
    status = objects.status(pod)
    scheduled = objects.condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return f"not on a node: {scheduled.get('message') or scheduled.get('reason')}"
    ready = objects.condition(pod, "Ready")
    why = "" if ready.get("status") == "True" else f", {ready.get('message') or 'not ready'}"
    return f"{status.get('phase')} on {pod['spec'].get('nodeName', 'no node')}{why}"


def _subject(event: Json) -> str:
    about = event.get("involvedObject") or {}
    return f"{str(about.get('kind', 'object')).lower()}/{about.get('name')}"


BEFORE_START: Final[tuple[Symptom, ...]] = (
    creation_rejected,
    image_pull,
    container_setup,
    image_pulling,
)
"""Pods that cannot be created or started."""
