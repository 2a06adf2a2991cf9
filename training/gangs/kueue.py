"""Kueue reads labels of the run's own object."""

from __future__ import annotations

from typing import Final

from infra.domain import naming, topology
from infra.domain.pools import NodePool
from training.gangs import Gang, GangBackend
from training.spec import RunSpec


class KueueGangs(GangBackend):
    """The run's object is queued; its pods need no marks but the wish for a topology."""

    keeps_max_hours = True
    admits_groups = True
    keeps_zone = True
    orders_pools = True

    def run_labels(self, gang: Gang) -> dict[str, str]:
        """Return queue, priority and time limit.

        The object is created without `suspend`: Kueue's webhook sets it, and a value in the manifest would
        suspend the run again with every update.
        """
        found = {
            naming.QUEUE_NAME: gang.queue,
            naming.WORKLOAD_PRIORITY: gang.priority,
        }
        if gang.run.max_hours is not None:
            found[naming.MAX_EXEC_SECONDS] = str(round(gang.run.max_hours * 3600))
        return found

    def topology(self, run: RunSpec, pools: tuple[NodePool, ...]) -> dict[str, str]:
        """Return the topology level within which Kueue packs the run's pods.

        A gang prefers one rack where node labels name racks. Otherwise it is kept in one zone, which is
        required where collectives run over RDMA and preferred elsewhere. Nothing where the scheduler
        chooses among the queue's nodes: each pool is in one zone anyway.
        """
        if not all(pool.topology for pool in pools):
            return {}
        level = topology.gang_level(pools) if run.nodes > 1 else naming.ZONE
        rdma = run.nodes > 1 and any(pool.network.rdma for pool in pools)
        required = rdma and level == naming.ZONE
        return {naming.REQUIRED_TOPOLOGY if required else naming.PREFERRED_TOPOLOGY: level}


BACKEND: Final = KueueGangs()
