"""What all rungs share: the stack, its templates, its nodes, and the Jobs of this climb."""

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
    """One climb."""

    cluster: Cluster
    stack: Stack
    jobs: Jobs
    pools: tuple[Pool, ...]
    """Those that are looked at."""
    allow_scale_up: bool = False
    """They were named, so Jobs are started on them even if that makes nodes."""
    team: Team | None = None
    """Whose restores are tried; None: of every production team."""
    smoke: dict[str, tuple[PodResult, ...]] = field(default_factory=dict)
    """By pool, what its smoke test said in this climb."""

    def nodes(self, pool: Pool) -> list[Json]:
        """Nodes of a pool, by name."""
        found = self.cluster.items(NODES, selector=f"{naming.POOL}={pool.name}")
        return sorted(found, key=objects.name)

    def free(self, pool: Pool) -> list[str]:
        """Its nodes that pods may be placed on, and on which none holds a GPU."""
        busy = {
            str(pod["spec"].get("nodeName", ""))
            for pod in self.cluster.items(PODS)
            if objects.status(pod).get("phase") in ("Pending", "Running")
            and objects.requests(pod["spec"]).get(naming.GPU)
        }
        names = [objects.name(node) for node in self.nodes(pool) if is_schedulable(node)]
        return [name for name in names if name not in busy]

    def template(self, kind: str, pool: Pool | None = None) -> Json | None:
        """The platform's template of this kind, of a pool if it is about one."""
        label = f"{naming.VALIDATION}={kind}"
        of_pool = f",{naming.POOL}={pool.name}" if pool else ""
        return next(iter(self.cluster.items(CRON_JOBS, NAMESPACE, label + of_pool)), None)


def is_schedulable(node: Json) -> bool:
    """Whether pods may be placed on it."""
    return objects.condition_is_true(node, "Ready") and not (node.get("spec") or {}).get(
        "unschedulable"
    )
