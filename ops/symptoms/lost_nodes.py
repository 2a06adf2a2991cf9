"""Runs that wait for a pod on a node whose kubelet does not report: the pod does not end, and is not replaced."""

from __future__ import annotations

from typing import Final

from ops import objects
from ops.objects import Json
from ops.snapshot import Snapshot, Verdict, pluralize

_SLACK_S: Final = 60.0
"""Seconds after its grace period for a pod to end whose node cannot be read."""


def lost_node(snapshot: Snapshot) -> Verdict | None:
    """A pod of it is on a node that has lost its kubelet.

    The Job creates no other pod for it until it has ended (`podReplacementPolicy: Failed`), which only the kubelet
    or the end of the Node reports: the gang is admitted and evicted in turns and trains nothing.
    """
    if snapshot.ending or snapshot.is_training:
        return None
    stuck = [pod for pod in snapshot.pods if _cannot_end(snapshot, pod)]
    lost = stuck or [pod for pod in snapshot.live_pods if _is_silent(_node(snapshot, pod))]
    if not lost:
        return None
    names = sorted({str(pod["spec"]["nodeName"]) for pod in lost})
    nodes = ", ".join(names)
    what = "end" if objects.meta(snapshot.run).get("deletionTimestamp") else "go on"
    return Verdict(
        symptom="lost-node",
        headline=f"cannot {what}: {pluralize(len(lost), 'pod')} cannot end on {nodes}"
        if stuck
        else f"has lost {nodes}: no kubelet reports from there",
        evidence=(
            *(_pod_line(snapshot, pod) for pod in lost),
            *(line for name in names for line in _node_lines(snapshot, name)),
        ),
        remedy=(
            f"end the instance of {nodes}, then kubectl delete node {' '.join(names)}: its pods go with it, and"
            " the run goes on elsewhere; on EKS node repair does both within 30 minutes",
            "not before the instance has ended: processes may still run there, which would train next to their"
            " replacements",
            "or restart its kubelet, which ends the pod",
        ),
    )


def _node(snapshot: Snapshot, pod: Json) -> Json | None:
    name = pod["spec"].get("nodeName")
    return next((node for node in snapshot.nodes if objects.name(node) == name), None)


def _is_silent(node: Json | None) -> bool:
    """Whether its kubelet has stopped posting: the node controller then sets Ready to Unknown."""
    return objects.condition(node, "Ready").get("status") == "Unknown"


def _cannot_end(snapshot: Snapshot, pod: Json) -> bool:
    """Whether it should have ended, its grace period included, and its node does not work."""
    until = objects.time(objects.meta(pod).get("deletionTimestamp"))
    if until is None or not pod["spec"].get("nodeName"):
        return False
    if objects.status(pod).get("phase") in ("Succeeded", "Failed"):
        return False
    late = (snapshot.now - until).total_seconds()
    if "nodes" in snapshot.hidden:
        return late > _SLACK_S
    node = _node(snapshot, pod)
    return late > 0 and node is not None and not objects.condition_is_true(node, "Ready")


def _pod_line(snapshot: Snapshot, pod: Json) -> str:
    until = objects.meta(pod).get("deletionTimestamp")
    state = (
        f"Terminating, its grace period over for {snapshot.ago(until)}; no pod replaces it before it has ended"
        if until
        else "its state is unknown"
    )
    return f"{objects.reference(pod)}: {state}"


def _node_lines(snapshot: Snapshot, name: str) -> list[str]:
    found = [node for node in snapshot.nodes if objects.name(node) == name]
    return [
        f"node/{name}: Ready is {ready['status']} for {snapshot.ago(ready.get('lastTransitionTime'))}:"
        f" {ready.get('message') or ready.get('reason')}"
        for node in found
        if (ready := objects.condition(node, "Ready"))
    ]
