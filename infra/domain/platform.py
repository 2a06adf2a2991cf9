"""Platform: the frozen record of everything that a run needs from the platform, and all it gets.

Values are plain, known while planning: they decide which objects exist and what they are called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.domain import naming
from infra.domain.pools import Capacity, NodePool, Workload
from infra.domain.scheduler import DEFAULT_SCHEDULER, Scheduler


@dataclass(frozen=True, kw_only=True)
class TeamOutputs:
    """One team's place on the platform."""

    name: str
    tier: str
    namespace: str
    local_queue: str
    """What its runs name to queue in: a LocalQueue, or the queue of another scheduler; empty: none."""
    cluster_queue: str
    """Empty: the scheduler has no ClusterQueues."""
    flavors: tuple[str, ...]
    """Pools that its queue may use, in the order in which they are tried."""
    gpu_quota: int
    """GPUs that its namespace may hold at once."""
    rdma: bool = False
    """Its pods may lock memory."""
    secrets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Variables of each secret that its runs may name."""
    most_nodes: Mapping[str, int] = field(default_factory=dict)
    """Nodes that it can have at once at the most, while all others are idle; a pool that is not named: all."""
    service_account: str = naming.SERVICE_ACCOUNT
    checkpoints_claim: str = naming.CHECKPOINTS_CLAIM
    datasets_claim: str = naming.DATASETS_CLAIM

    def checkpoint_uri(self, run_id: str) -> str:
        """Where a run's checkpoints are, for people and scripts: pvc://NAMESPACE/CLAIM/PATH."""
        return f"pvc://{self.namespace}/{self.checkpoints_claim}/{run_id}/checkpoints"


@dataclass(frozen=True, kw_only=True)
class Platform:
    """What the platform offers to runs."""

    stack: str
    cluster: str
    cohort: str
    pools: tuple[NodePool, ...]
    teams: Mapping[str, TeamOutputs]
    launchers: frozenset[str]
    """Launchers whose operators the cluster has."""
    scheduler: Scheduler = DEFAULT_SCHEDULER
    """What queues runs and admits their gangs."""
    gang_api: str = ""
    """With the native scheduler: the apiVersion of its PodGroup."""
    priorities: Mapping[str, int]
    """Name of each PriorityClass and WorkloadPriorityClass, and its value."""
    default_priority: Mapping[str, str]
    """Priority of a run that names none, by tier."""
    storage_class: str
    registries: tuple[str, ...] = ()
    """Registries or repositories that images may come from."""
    grafana: str = ""
    """URL under which people reach Grafana; empty: there is none."""
    pod_additions: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    """What each pod of a run gains, by field: `initContainers` (without image: the trainer's) and `volumes`
    of the pod, `env` and `volumeMounts` of the trainer's container."""

    def gpu_pools(self, team: str) -> tuple[NodePool, ...]:
        """The GPU pools that a team's queue may use, in the queue's order."""
        by_name = {p.name: p for p in self.pools if p.workload is Workload.GPU_TRAINING}
        return tuple(by_name[name] for name in self.teams[team].flavors)

    @property
    def cpu_pool(self) -> NodePool | None:
        """Where work without GPUs goes; None: wherever the scheduler likes."""
        return next((p for p in self.pools if p.workload is Workload.CPU), None)

    def export(self) -> dict[str, Any]:
        """The stack output `platform`."""
        return {
            "stack": self.stack,
            "cluster": self.cluster,
            "cohort": self.cohort,
            "namespaces": {t.name: t.namespace for t in self.teams.values()},
            "queues": {t.name: t.local_queue for t in self.teams.values()},
            "clusterQueues": {
                t.name: t.cluster_queue for t in self.teams.values() if t.cluster_queue
            },
            "scheduler": self.scheduler.value,
            "flavors": [p.name for p in self.pools if p.workload is Workload.GPU_TRAINING],
            "pools": {p.name: _pool_output(p) for p in self.pools},
            "storage": {
                "storageClass": self.storage_class,
                "checkpointsClaim": naming.CHECKPOINTS_CLAIM,
                "datasetsClaim": naming.DATASETS_CLAIM,
            },
            "serviceAccounts": {
                t.name: f"{t.namespace}/{t.service_account}" for t in self.teams.values()
            },
            "priorities": dict(self.priorities),
            "launchers": sorted(self.launchers),
        }


def _pool_output(pool: NodePool) -> dict[str, Any]:
    return {
        "capacity": pool.capacity.value,
        "instanceTypes": list(pool.instance_types),
        "min": pool.min,
        "max": pool.max,
        "zone": pool.zone,
        "gpusPerNode": pool.gpus_per_node,
        "usdPerNodeHour": pool.usd_per_node_hour,
        "spot": pool.capacity is Capacity.SPOT,
    }
