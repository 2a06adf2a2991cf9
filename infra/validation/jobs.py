"""Node checks: suspended CronJobs that serve as templates of Jobs.

`kubectl create job --from=cronjob/smoke-POOL NAME -n trainyard-validation`. Each pod takes all GPUs of its
node, so no two share one, and ends its log with a line of JSON; see docs/readiness.md#validate-nodes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from infra.domain import fabric, naming, quantity
from infra.domain.pools import Network, NodePool, Nodes, Workload
from infra.kubernetes.objects import Manifest, metadata
from infra.validation import pods

COMPONENT: Final = pods.NAME
"""Name of service account, headless Service and LocalQueue, and label of pods."""
QUEUEING: Final = "validation-queueing"
"""Name of flavor, ClusterQueue and LocalQueue of the queue check."""

QUEUE_ROOM: Final[Mapping[str, str]] = {"cpu": "100m", "memory": "128Mi"}
"""Requests of a Job of the queue check, and the whole quota of its queue."""
QUEUE_PRIORITIES: Final[Mapping[str, str]] = {
    "queueing-low": "best-effort-training",
    "queueing-high": "research-training",
}
_HOLDS_S: Final[Mapping[str, int]] = {"queueing-low": 60, "queueing-high": 2}
"""Seconds for which such a Job runs."""
LOWEST_PRIORITY: Final = "best-effort-training"

NAME_MAX: Final = 52 - len("train-single-")
"""Most characters of a pool's name, from the 52 of a CronJob's."""

_SCHEDULES: Final[Mapping[str, str]] = {"smoke": "0 5 * * 1", "collective": "30 5 * * 1"}
"""Mondays, UTC, where weekly checks are on. Other checks run on demand only."""
_DEADLINE_S: Final = 1800
_NODES_ENV: Final = "TRAINYARD_NODES"
_JOB_ENV: Final = "TRAINYARD_JOB"
_CPU_PER_GPU: Final = 2000
"""Millicores, for a rank and NCCL's polling threads."""

_TRANSPORTS = {Network.EFA: "efa", Network.ROCE: "ib"}
"""What NCCL must report to use, as trainer/validation/transport.py names it: RoCE is `ib` to NCCL."""
_MEMORY_PER_GPU: Final = 6 * quantity.GIB
"""Bytes, for torch, the CUDA context and /dev/shm."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    name: str
    several: bool = False
    """Whether it checks the network between nodes."""

    def nodes(self, pool: NodePool) -> int:
        """Return the number of nodes: for smoke and collective, all permanent ones."""
        if self.name == "smoke":
            return max(1, pool.min)
        if self.name == "collective":
            return min(pool.max, max(2, pool.min))
        return 2 if self.several else 1

    def suits(self, pool: NodePool) -> bool:
        if self.several and pool.sharing:
            return False  # NCCL rejects ranks that share a GPU
        if self.name == "collective":
            return pool.max * pool.gpus_per_node > 1
        return pool.max > 1 if self.several else True


KINDS: Final = (
    Kind(name="smoke"),
    Kind(name="collective", several=True),
    Kind(name="train-single"),
    Kind(name="train-multi", several=True),
)


@dataclass(frozen=True, kw_only=True)
class TemplateContext:
    """Facts of the stack that templates need besides their pool."""

    image: str
    """The trainer's, by digest."""
    queue: str = ""
    """LocalQueue of GPU Jobs; empty: they are not queued."""
    weekly: bool = False
    min_gbps: Mapping[str, float] = field(default_factory=dict)
    """By pool, least bus bandwidth of its collective check in GB/s."""
    topology: Mapping[str, str] = field(default_factory=dict)
    """By pool, the topology level within which Kueue prefers to pack its pods."""


def gpus(pool: NodePool) -> int:
    """Return the GPUs of a pod: all of a node, or one share of a shared GPU."""
    return 1 if pool.sharing else pool.gpus_per_node


def checked(pools: Sequence[NodePool]) -> list[NodePool]:
    return [p for p in pools if p.workload is Workload.GPU_TRAINING and p.nodes is not Nodes.KWOK]


def templates(pools: Sequence[NodePool], around: TemplateContext) -> list[Manifest]:
    return [
        _of_pool(kind, pool, around)
        for pool in checked(pools)
        for kind in KINDS
        if kind.suits(pool)
    ]


def expected(kind: Kind, pool: NodePool, around: TemplateContext) -> dict[str, Any]:
    """Return the expected results of the check; see trainer/validation/consistency.py."""
    found: dict[str, Any] = {}
    if not pool.nodes.simulated:
        found |= {"models": list(pool.gpu_models), "zone": pool.zone}
        adapters = pool.efa_per_node or len(pool.fabric.adapters)
        if kind.several and adapters:
            found["fabric_devices"] = adapters
    if (mtu := fabric.expected_mtu(pool)) is not None:
        found["mtu"] = mtu
    if kind.name == "collective" and pool.network in _TRANSPORTS and not pool.nodes.simulated:
        found["transport"] = _TRANSPORTS[pool.network]
    if kind.name == "collective" and pool.name in around.min_gbps:
        found["gbps"] = around.min_gbps[pool.name]
    return found


def _of_pool(kind: Kind, pool: NodePool, around: TemplateContext) -> Manifest:
    labels = naming.object_labels(COMPONENT) | {
        naming.VALIDATION: kind.name,
        naming.POOL: pool.name,
    }
    nodes = kind.nodes(pool)
    # Only for permanent nodes: a weekly check must not buy any.
    schedule = _SCHEDULES.get(kind.name, "") if around.weekly and pool.min >= nodes else ""
    near = (
        {naming.PREFERRED_TOPOLOGY: around.topology[pool.name]}
        if pool.name in around.topology
        else {}
    )
    pod = pods.pod(_command(kind, pool, around), _environment(kind, pool), around.image)
    pod |= {
        "nodeSelector": {naming.POOL: pool.name, naming.WORKLOAD_TYPE: naming.GPU_TRAINING},
        "tolerations": pool.tolerations(),
    }
    pod["containers"][0]["resources"] = _resources(kind, pool)
    shm = quantity.memory(gpus(pool) * quantity.GIB)
    pods.mount(pod, "shm", "/dev/shm", {"medium": "Memory", "sizeLimit": shm})
    job = {
        "completionMode": "Indexed",
        "completions": nodes,
        "parallelism": nodes,
        # Every node reports, also if another fails.
        "backoffLimitPerIndex": 0,
        "activeDeadlineSeconds": _DEADLINE_S,
        "template": {"metadata": {"labels": labels, "annotations": near}, "spec": pod},
    }
    queue = _queue_labels(around.queue, LOWEST_PRIORITY) if around.queue else {}
    return _cron_job(f"{kind.name}-{pool.name}", labels, queue, schedule, job)


def queueing(image: str, cpu_pool: NodePool | None) -> list[Manifest]:
    """Return two Jobs for the same quota; the second has the higher priority."""
    return [_queueing(name, image, cpu_pool) for name in QUEUE_PRIORITIES]


def _queueing(name: str, image: str, cpu_pool: NodePool | None) -> Manifest:
    labels = naming.object_labels(COMPONENT) | {naming.VALIDATION: name}
    command = [*("python", "-m", "trainer.validation", name), f"--seconds={_HOLDS_S[name]}"]
    pod = pods.pod(command, pods.pod_environment(), image)
    if cpu_pool:
        pod["nodeSelector"] = {naming.POOL: cpu_pool.name}
    pod["containers"][0]["resources"] = {"requests": dict(QUEUE_ROOM), "limits": dict(QUEUE_ROOM)}
    job = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": _DEADLINE_S,
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    return _cron_job(name, labels, _queue_labels(QUEUEING, QUEUE_PRIORITIES[name]), "", job)


def _queue_labels(queue: str, priority: str) -> dict[str, str]:
    return {naming.QUEUE_NAME: queue, naming.WORKLOAD_PRIORITY: priority}


def _cron_job(
    name: str, labels: Mapping[str, str], queue: Mapping[str, str], schedule: str, job: Manifest
) -> Manifest:
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": metadata(name, namespace=naming.VALIDATION_NAMESPACE, labels=labels),
        "spec": {
            # The schedule of a suspended template is unused but must be valid.
            "schedule": schedule or "0 0 1 1 *",
            "timeZone": "Etc/UTC",
            "suspend": not schedule,
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": 3600,
            "successfulJobsHistoryLimit": 1,
            "failedJobsHistoryLimit": 1,
            "jobTemplate": {"metadata": {"labels": {**labels, **queue}}, "spec": job},
        },
    }


def _command(kind: Kind, pool: NodePool, around: TemplateContext) -> list[str]:
    """Return the command line; the kubelet substitutes `$(NAME)`."""
    command = [
        *("python", "-m", "trainer.validation", kind.name),
        f"--processes={gpus(pool)}",
        f"--device={'cpu' if pool.nodes.simulated else 'cuda'}",
        f"--expect={json.dumps(expected(kind, pool, around), sort_keys=True)}",
    ]
    if kind.name == "smoke":
        return command
    leader = f"$({_JOB_ENV})-0.{COMPONENT}"
    return [*command, f"--nodes=$({_NODES_ENV})", f"--job=$({_JOB_ENV})", f"--leader={leader}"]


def _environment(kind: Kind, pool: NodePool) -> list[dict[str, Any]]:
    own = [
        *pods.pod_environment(),
        pods.from_pod(_JOB_ENV, "metadata.labels['batch.kubernetes.io/job-name']"),
        # To start a Job on more nodes, change this with parallelism and completions.
        {"name": _NODES_ENV, "value": str(kind.nodes(pool))},
    ]
    network = _network(kind, pool)
    return [*own, *({"name": name, "value": network[name]} for name in sorted(network))]


def _network(kind: Kind, pool: NodePool) -> dict[str, str]:
    """Return NCCL's variables; the collective check logs more about the transport."""
    if kind.name == "collective":
        return fabric.collective_env(pool)
    return fabric.nccl_env(pool) if kind.several else {}


def _resources(kind: Kind, pool: NodePool) -> dict[str, dict[str, str]]:
    """Return all GPUs of a node, and CPU and memory for as many ranks."""
    room, taken = pool.node_quota, gpus(pool)
    amounts = {
        "cpu": quantity.cpu(min(room["cpu"], taken * _CPU_PER_GPU)),
        "memory": quantity.memory(min(room["memory"], taken * _MEMORY_PER_GPU)),
        naming.GPU: str(taken),
    }
    if kind.several:
        amounts |= {name: str(count) for name, count in pool.fabric_devices.items() if count}
    return {"requests": dict(amounts), "limits": dict(amounts)}
