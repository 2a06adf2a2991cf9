"""GPU problems of a run: not visible, driver not usable, faulty hardware."""

from __future__ import annotations

import re
from typing import Final

from infra.domain import naming
from ops import logs, objects, placement
from ops.objects import Json
from ops.snapshot import Snapshot, Verdict, pluralize
from ops.symptoms import terminal_states
from ops.symptoms.pending import is_pending, lacks_topology_fit

GPU_NAMESPACE: Final = naming.GPU_OPERATOR_NAMESPACE
VISIBLE_AFTER_S: Final = 300.0
"""Time for a new node to get its driver, container toolkit and device plugin."""
_SHOWN: Final = 6
_RUNTIME: Final = re.compile(
    r"nvidia-container|libnvidia|libcuda|nvml|driver/library version mismatch", re.IGNORECASE
)
"""Messages of container runtimes that failed to give a container its GPUs."""
_HARDWARE: Final = "AcceleratedHardwareReady"
"""Condition of the EKS node monitoring agent; its reason names the XID or the failed check."""


def not_visible(snapshot: Snapshot) -> Verdict | None:
    spec = _stuck_pod_spec(snapshot)
    if spec is None:
        return None
    affected = [
        node
        for node in nodes_without_gpu(snapshot, spec)
        if _age_s(snapshot, node) >= VISIBLE_AFTER_S
    ]
    if not affected:
        return None
    unready = [pod for pod in snapshot.gpu_pods if not objects.condition_is_true(pod, "Ready")]
    return Verdict(
        symptom="gpu-not-visible",
        headline=f"waits: {pluralize(len(affected), 'matching GPU node')} without allocatable"
        f" {naming.GPU}",
        evidence=(
            *(
                f"{objects.reference(node)}: no {naming.GPU} in allocatable"
                for node in affected[:_SHOWN]
            ),
            *(f"{objects.reference(pod)}: {_pod_state(pod)}" for pod in unready[:_SHOWN]),
            *([] if snapshot.gpu_pods else ["no device plugin pod runs on them"]),
        ),
        remedy=(
            "check that the GPU Operator or the device plugin runs on these nodes:"
            f" kubectl get pods -n {GPU_NAMESPACE} -o wide",
            "its DaemonSets must tolerate the pool's taints, and the node requires a driver:"
            " docs/gpus.md",
        ),
    )


def nodes_without_gpu(snapshot: Snapshot, pod_spec: Json) -> list[Json]:
    """Return the GPU nodes that match the pod but have no allocatable GPU."""
    return [
        node
        for node in snapshot.nodes
        if placement.gpu_not_visible(node)
        and placement.matches(pod_spec, objects.meta(node).get("labels") or {})
    ]


def _stuck_pod_spec(snapshot: Snapshot) -> Json | None:
    for pod in snapshot.live_pods:
        if objects.condition(pod, "PodScheduled").get("reason") == "Unschedulable":
            spec: Json = pod["spec"]
            return spec
    if snapshot.workload is not None and is_pending(snapshot) and lacks_topology_fit(snapshot):
        first: Json = snapshot.workload["spec"]["podSets"][0]["template"]["spec"]
        return first
    return None


def _age_s(snapshot: Snapshot, node: Json) -> float:
    made = objects.time(objects.meta(node).get("creationTimestamp"))
    return (snapshot.now - made).total_seconds() if made else VISIBLE_AFTER_S


def driver_unusable(snapshot: Snapshot) -> Verdict | None:
    if snapshot.is_training:
        return None
    for pod in snapshot.pods:
        for one in objects.containers(pod, init=True):
            for state in (one.get("state") or {}, one.get("lastState") or {}):
                state_detail = state.get("waiting") or state.get("terminated") or {}
                if _RUNTIME.search(str(state_detail.get("message") or "")):
                    return _driver_verdict(
                        snapshot, pod, f"{state_detail.get('reason')}: {state_detail['message']}"
                    )
    return None


def _driver_verdict(snapshot: Snapshot, pod: Json, message: str) -> Verdict:
    node = pod["spec"].get("nodeName", "its node")
    return Verdict(
        symptom="gpu-driver",
        headline=f"cannot start: the container runtime on {node} cannot access its GPUs",
        evidence=(f"{objects.reference(pod)}: {logs.sanitize(message)}",),
        remedy=(
            "the node's driver, container toolkit and runtime are incompatible: on an AMI with a"
            " driver, disable the GPU Operator's driver",
            f"kubectl cordon {node}, and compare its `nvidia-smi` with a working node",
        ),
    )


def cpu_node(snapshot: Snapshot) -> Verdict | None:
    placed = [pod for pod in snapshot.live_pods if pod["spec"].get("nodeName")]
    known = {objects.name(node): node for node in snapshot.nodes}
    nodes = [known.get(str(pod["spec"]["nodeName"])) for pod in placed]
    if not placed or any(node is None or placement.has_gpus(node) for node in nodes):
        return None
    asks = any(objects.requests(pod["spec"]).get(naming.GPU) for pod in placed)
    return Verdict(
        symptom="cpu-node",
        headline="runs on nodes without GPUs"
        + ("" if asks else f": its pods do not request {naming.GPU}"),
        evidence=tuple(
            f"{objects.reference(pod)}: on {pod['spec']['nodeName']}, which has no GPU"
            for pod in placed[:_SHOWN]
        ),
        remedy=(
            "launch it from a run file: launchers set GPU limits, affinity to GPU pools and"
            " tolerations",
            f"without {naming.GPU} in its limits a pod can be placed on any node",
        ),
    )


def gpu_faults(snapshot: Snapshot) -> list[str]:
    """Return hardware GPU errors on the nodes of its pods, from node conditions and metrics."""
    mine = {str(pod["spec"].get("nodeName", "")) for pod in snapshot.pods}
    found = []
    for node in snapshot.nodes:
        condition = objects.condition(node, _HARDWARE)
        if objects.name(node) in mine and condition.get("status") == "False":
            why = f"{condition.get('reason', '')} {condition.get('message', '')}".strip()
            found.append(f"{objects.reference(node)}: {_HARDWARE} is False: {logs.sanitize(why)}")
    faults = snapshot.vitals.gpu_faults if snapshot.vitals else ()
    return found + [f"node/{one.node}: GPU {one.gpu}: {one.what}" for one in faults]


def caused_failure(snapshot: Snapshot) -> Verdict | None:
    how, found = terminal_states.failure_mode(snapshot), gpu_faults(snapshot)
    return fault_verdict(f"{how}:", found) if how and found else None


def fault_verdict(how: str, found: list[str]) -> Verdict:
    nodes = sorted({line.partition(":")[0].removeprefix("node/") for line in found})
    return Verdict(
        symptom="gpu-fault",
        headline=f"{how} a GPU on {', '.join(nodes)} reports hardware errors",
        evidence=tuple(found[:_SHOWN]),
        remedy=(
            *(f"kubectl cordon {node}" for node in nodes),
            "node auto repair replaces the node where it is enabled; else drain and replace it:"
            " docs/runbooks.md#gpuhardwareerror",
        ),
    )


def _pod_state(pod: Json) -> str:
    waiting = [
        state
        for one in objects.containers(pod, init=True)
        if (state := objects.state(one, "waiting"))
    ]
    why = f", {waiting[0].get('reason')}" if waiting else ""
    return f"{objects.status(pod).get('phase', 'Pending')}, not ready{why}"
