"""Admitted runs with unschedulable pods: labels, taints, GPUs in use, partial gangs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from infra.domain import naming
from ops import objects, placement
from ops.objects import Json
from ops.runs import states
from ops.snapshot import Snapshot, Symptom, Verdict, pluralize
from ops.symptoms.scarcity import node_lines

_SHOWN: Final = 6
_AUTOSCALER_EVENTS: Final = (
    "FailedScaleUp",
    "NotTriggerScaleUp",
    "TriggeredScaleUp",
    "Nominated",
)
"""Event reasons of autoscalers on pods: Cluster Autoscaler's, then Karpenter's."""
_NO_GPU: Final = f"Insufficient {naming.GPU}"
_TAINT: Final = re.compile(r"untolerated taint")
_AFFINITY: Final = re.compile(r"didn't match Pod's node (affinity|selector)")
_NODE_CONDITION_TAINT: Final = "node.kubernetes.io/"
"""Prefix of taints that report a node condition; runs must not tolerate them."""


def unschedulable_pods(snapshot: Snapshot) -> list[Json]:
    return [
        pod
        for pod in snapshot.live_pods
        if objects.condition(pod, "PodScheduled").get("reason") == "Unschedulable"
    ]


def partial_gang(snapshot: Snapshot) -> Verdict | None:
    without = unschedulable_pods(snapshot)
    started = [p for p in snapshot.live_pods if objects.status(p).get("phase") == "Running"]
    if not without or not started:
        return None
    ganged = snapshot.queue_name or snapshot.other_scheduler
    size = max(snapshot.expected_size, len(started) + len(without))
    return Verdict(
        symptom="partial-gang",
        headline=f"runs only {len(started)} of {size} workers, which wait for the others",
        evidence=(_scheduler_message(without[0]), *node_lines(snapshot, without[0]["spec"], ())),
        remedy=(
            "nodes were lost after its admission: Kueue evicts and requeues it"
            if snapshot.queue_name
            else f"{snapshot.other_scheduler} schedules its gang:"
            f" kubectl describe podgroups -n {snapshot.namespace}"
            if ganged
            else "nothing schedules it as a gang: launch it from a run file, so that it queues and"
            " starts all or nothing",
            "until then the running workers hold idle GPUs",
        ),
    )


def earlier_admission(snapshot: Snapshot) -> Verdict | None:
    """Its pods are those of an earlier admission, to another pool.

    Kueue can admit a preempted gang again before the Job controller has seen it suspended, and replaced its pods.
    """
    now = states.pools(snapshot.workload)
    stale = [
        pod
        for pod in unschedulable_pods(snapshot)
        if now and (pod["spec"].get("nodeSelector") or {}).get(naming.POOL, now[0]) not in now
    ]
    if not stale:
        return None
    name = objects.name(snapshot.workload or {})
    active = f"kubectl patch workload {name} -n {snapshot.namespace} --type merge -p"
    pool = stale[0]["spec"]["nodeSelector"][naming.POOL]
    pods = pluralize(len(snapshot.live_pods), "pod")
    return Verdict(
        symptom="earlier-admission",
        headline=f"is admitted to {', '.join(now)}, but {len(stale)} of its {pods} still require {pool}, from an"
        " earlier admission, and fit no node",
        evidence=(_scheduler_message(stale[0]),),
        remedy=(
            "wait: Kueue evicts a gang whose pods are not ready in time, which replaces them",
            f'at once, as an administrator: {active} \'{{"spec": {{"active": false}}}}\','
            " then the same with true",
        ),
    )


_BLOCKED: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "missing-toleration": (
        "do not tolerate the taints of the matching nodes",
        (
            "launchers tolerate the taints of the pools that exist at launch: raise `version` if the pool"
            " is newer than the run",
            "a maintenance taint: kubectl taint nodes NODE KEY- when the maintenance is over",
        ),
    ),
    "strict-affinity": (
        "require labels that no node has",
        (
            f"kubectl get nodes -L {naming.POOL},{naming.GPU_MODEL},{naming.WORKLOAD_TYPE}",
            "change gpuModel, gpusPerNode or capacity in the run file, or label the nodes of an existing"
            " cluster as the pool requires",
        ),
    ),
    "no-gpu-capacity": (
        "find no free GPUs",
        (
            "wait for the runs above, or raise the pool's max",
            "with an autoscaler: kubectl get events shows the cloud's responses; spot capacity may be"
            " short in that zone",
        ),
    ),
    "unschedulable": (
        "fit no node",
        (
            f"kubectl get nodes -L {naming.POOL}: look for lost, cordoned, tainted or full nodes",
            "with an autoscaler, wait for new nodes; else Kueue evicts and requeues the run",
        ),
    ),
}
"""What pods without a node do, and remedies, by symptom."""


def blocked(snapshot: Snapshot) -> Verdict | None:
    """Say what keeps the first unschedulable pod from every node."""
    without = unschedulable_pods(snapshot)
    if not without:
        return None
    symptom = classify(snapshot, without[0])
    what, remedy = _BLOCKED[symptom]
    pods = pluralize(len(snapshot.live_pods), "pod")
    return Verdict(
        symptom=symptom,
        headline=f"is admitted, but {len(without)} of its {pods} {what}",
        evidence=(
            _scheduler_message(without[0]),
            *node_lines(snapshot, without[0]["spec"], ()),
            *(_gpu_holders(snapshot) if symptom == "no-gpu-capacity" else []),
            *_autoscaler_event(snapshot, without),
        ),
        remedy=remedy,
    )


def classify(snapshot: Snapshot, pod: Json) -> str:
    """Return the key of _BLOCKED for an unschedulable pod."""
    message = str(objects.condition(pod, "PodScheduled").get("message", ""))
    if "nodes" in snapshot.hidden:
        return _by_message(message)
    counts = placement.node_rejections(pod["spec"], snapshot.nodes)
    if not counts:
        return "no-gpu-capacity"
    if counts[""]:
        return "no-gpu-capacity" if _NO_GPU in message else "unschedulable"
    suiting = Counter({why: n for why, n in counts.items() if why != placement.OTHER_LABELS})
    if not suiting:
        return "strict-affinity"
    tainted = [why for why in suiting if why.startswith(placement.TAINTED)]
    ours = [why for why in tainted if _NODE_CONDITION_TAINT not in why]
    return "missing-toleration" if len(ours) == len(suiting) else "unschedulable"


def _by_message(message: str) -> str:
    """Classify by the scheduler's message, for callers who may not read nodes."""
    if _NO_GPU in message:
        return "no-gpu-capacity"
    if _TAINT.search(message):
        return "unschedulable" if _NODE_CONDITION_TAINT in message else "missing-toleration"
    return "strict-affinity" if _AFFINITY.search(message) else "unschedulable"


def _scheduler_message(pod: Json) -> str:
    message = objects.condition(pod, "PodScheduled").get("message", "")
    return f"{objects.reference(pod)}: {message}"


def _gpu_holders(snapshot: Snapshot) -> list[str]:
    held: Counter[tuple[str, str]] = Counter()
    for pod in snapshot.others_pods:
        gpus = int(objects.requests(pod["spec"]).get(naming.GPU, 0))
        over = objects.status(pod).get("phase") in ("Succeeded", "Failed")
        if gpus and pod["spec"].get("nodeName") and not over:
            held[objects.label(pod, naming.RUN_ID), objects.label(pod, naming.TEAM)] += gpus
    return [
        f"{run or 'a pod outside any run'} (team {team or 'unknown'}) holds {gpus} GPUs"
        for (run, team), gpus in held.most_common(_SHOWN)
    ]


def _autoscaler_event(snapshot: Snapshot, without: list[Json]) -> list[str]:
    message = [e for e in snapshot.events_of(*without) if e.get("reason") in _AUTOSCALER_EVENTS]
    return [
        f"pod/{e['involvedObject']['name']}: {e['reason']}: {e['message']}" for e in message[-1:]
    ]


CHECKS: Final[tuple[Symptom, ...]] = (
    partial_gang,
    earlier_admission,
    blocked,
)
"""Pods without a node, specific causes first."""
