"""The Platform record passed to runs.

Values are plain and known while planning, because they decide which objects exist and their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.domain import naming, prices
from infra.domain.pools import Capacity, NodePool, Workload
from infra.domain.scheduler import DEFAULT_SCHEDULER, Scheduler


@dataclass(frozen=True, kw_only=True)
class TeamOutputs:
    name: str
    tier: str
    namespace: str
    local_queue: str
    """Queue that its runs name: a LocalQueue, or that of another scheduler; empty: none."""
    cluster_queue: str
    """Empty: the scheduler has no ClusterQueues."""
    flavors: tuple[str, ...]
    """Pools that its queue may use, in order of preference."""
    gpu_quota: int
    """Most GPUs of its namespace at once."""
    secrets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Environment variables by name of a secret that its runs may use."""
    most_nodes: Mapping[str, int] = field(default_factory=dict)
    """Most nodes at once by pool, while other teams are idle; default: the whole pool."""
    service_account: str = naming.SERVICE_ACCOUNT
    checkpoints_claim: str = naming.CHECKPOINTS_CLAIM
    datasets_claim: str = naming.DATASETS_CLAIM

    def checkpoint_uri(self, run_id: str) -> str:
        """Return the location of a run's checkpoints: pvc://NAMESPACE/CLAIM/PATH."""
        return f"pvc://{self.namespace}/{self.checkpoints_claim}/{run_id}/checkpoints"


@dataclass(frozen=True, kw_only=True)
class Platform:
    stack: str
    cluster: str
    cohort: str
    pools: tuple[NodePool, ...]
    teams: Mapping[str, TeamOutputs]
    launchers: frozenset[str]
    """Launchers that the cluster supports."""
    scheduler: Scheduler = DEFAULT_SCHEDULER
    """What queues runs and admits their gangs."""
    gang_api: str = ""
    """apiVersion of the PodGroup; native scheduler only."""
    priorities: Mapping[str, int]
    """Values of PriorityClasses and WorkloadPriorityClasses by name."""
    default_priority: Mapping[str, str]
    """Default priority by tier."""
    storage_class: str
    buckets: tuple[str, ...] = ()
    """Buckets of the stack in which pods of a team read their team's prefix, `TEAM/`; empty: it has none."""
    writable_buckets: tuple[str, ...] = ()
    """Those of `buckets` in which they also write."""
    registries: tuple[str, ...] = ()
    """Allowed registries or repositories of images."""
    egress_cidrs: tuple[str, ...] = ()
    """Blocks that pods of teams reach by HTTPS."""
    grafana: str = ""
    """URL of Grafana; empty: none."""
    releases_groups: bool = False
    """Whether the stack lets groups of ended runs go that still wait for nodes; runs with groups require it."""
    image_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """What the stack's images declare, by digest; see training/image_capabilities.py."""
    pod_additions: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Additions to each pod of a run by field: `initContainers` (without image: the trainer's) and `volumes` of
    the pod, `env` and `volumeMounts` of the trainer's container."""

    def gpu_pools(self, team: str) -> tuple[NodePool, ...]:
        """Return the GPU pools that a team's queue may use, in the queue's order."""
        by_name = {p.name: p for p in self.pools if p.workload is Workload.GPU_TRAINING}
        return tuple(by_name[name] for name in self.teams[team].flavors)

    @property
    def cpu_pool(self) -> NodePool | None:
        """Pool of work without GPUs; None lets the scheduler choose."""
        return next((p for p in self.pools if p.workload is Workload.CPU), None)

    def export(self) -> dict[str, Any]:
        """Return the stack output `platform`."""
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
        "usdPerNodeHour": prices.per_node(pool),
        "spot": pool.capacity is Capacity.SPOT,
    }
