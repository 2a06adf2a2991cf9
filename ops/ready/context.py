"""Session of a readiness check: the stack, its templates and nodes, and the session's Jobs."""

from __future__ import annotations

from dataclasses import dataclass, field

from infra.domain import naming
from ops import objects
from ops.cluster import Cluster
from ops.collect import NODES, PODS
from ops.objects import Json
from ops.ready.jobs import CRON_JOBS, Jobs
from ops.ready.pod_results import PodResult
from ops.ready.stack_facts import NAMESPACE, Pool, Stack, Team


@dataclass(frozen=True, kw_only=True)
class Session:
    """One readiness check."""

    cluster: Cluster
    stack: Stack
    jobs: Jobs
    pools: tuple[Pool, ...]
    """Pools to check."""
    allow_scale_up: bool = False
    """Whether Jobs may be started that make the autoscaler add nodes (pools named with --pool)."""
    team: Team | None = None
    """Team whose restore drill is run; None: every team that requires drills."""
    smoke: dict[str, tuple[PodResult, ...]] = field(default_factory=dict)
    """Results of this session's smoke test, by pool."""

    def nodes(self, pool: Pool) -> list[Json]:
        """Return the nodes of a pool, sorted by name."""
        found = self.cluster.items(NODES, selector=f"{naming.POOL}={pool.name}")
        return sorted(found, key=objects.name)

    def free(self, pool: Pool) -> list[str]:
        """Return the names of schedulable nodes on which no pod holds a GPU."""
        busy = {
            str(pod["spec"].get("nodeName", ""))
            for pod in self.cluster.items(PODS)
            if objects.status(pod).get("phase") in ("Pending", "Running")
            and objects.requests(pod["spec"]).get(naming.GPU)
        }
        names = [objects.name(node) for node in self.nodes(pool) if is_schedulable(node)]
        return [name for name in names if name not in busy]

    def template(self, kind: str, pool: Pool | None = None) -> Json | None:
        """Return the CronJob template of this kind, for a pool if given; None if there is none."""
        label = f"{naming.VALIDATION}={kind}"
        of_pool = f",{naming.POOL}={pool.name}" if pool else ""
        return next(iter(self.cluster.items(CRON_JOBS, NAMESPACE, label + of_pool)), None)


def is_schedulable(node: Json) -> bool:
    """Whether it is Ready and not cordoned."""
    return objects.condition_is_true(node, "Ready") and not (node.get("spec") or {}).get(
        "unschedulable"
    )
