"""Kueue: one ResourceFlavor per GPU pool, one ClusterQueue per team, one cohort.

Work without GPUs (preparing datasets) is not queued: a resource can be covered by one group of flavors only,
and a `cpu` flavor in that group would offer the cores of GPU nodes to everything else. The namespace's
ResourceQuota bounds it instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pulumi

from infra.domain import naming, quantity
from infra.domain.pools import NodePool
from infra.domain.scheduler import Scheduler
from infra.domain.tier import TIERS
from infra.domain.topology import FLAT, RACKS, Topology, pool_topology
from infra.kubernetes.objects import Manifest, manifest
from infra.kubernetes.resources import KubernetesObject
from infra.queueing import quotas
from infra.queueing.backends import SchedulerBackend, TeamQueues
from infra.queueing.kueue_admission import require_team_queue, workloads_written_by_kueue
from infra.queueing.priorities import DESCRIPTIONS, PRIORITIES
from infra.queueing.quotas import QueuesArgs, Share
from infra.queueing.scale_up import GangScaleUp, checks_strategy
from infra.sections.teams import TeamConfig


def topology(of: Topology = RACKS) -> Manifest:
    """Return the Topology: Kueue tracks free capacity per node and packs a gang in few domains."""
    return manifest(
        f"{naming.KUEUE_API}/Topology",
        of.name,
        "queues",
        spec={"levels": [{"nodeLabel": label} for label in of.levels]},
    )


def flavor(pool: NodePool) -> Manifest:
    """Return the ResourceFlavor of a pool; runs admitted to it get its selector and tolerations."""
    return manifest(
        f"{naming.KUEUE_API}/ResourceFlavor",
        pool.name,
        "queues",
        spec={
            "nodeLabels": {naming.POOL: pool.name},
            "nodeTaints": [taint.manifest() for taint in pool.taints],
            "tolerations": pool.tolerations(),
            **({"topologyName": pool_topology(pool).name} if pool.topology else {}),
        },
    )


def covered_resources(pools: Sequence[NodePool]) -> list[str]:
    """Return the resources with quota; a run that requests others is never admitted."""
    adapters = sorted({name for pool in pools for name in pool.fabric_devices})
    return ["cpu", "memory", naming.GPU, *adapters]


def resource_group(pools: Sequence[NodePool], shares: Mapping[str, Share]) -> dict[str, Any]:
    """Return one group of all pools, in this order, each with the quotas of a share of its nodes."""
    covered = covered_resources(pools)
    return {
        "coveredResources": covered,
        "flavors": [
            {
                "name": pool.name,
                "resources": [_quotas(name, pool, shares[pool.name]) for name in covered],
            }
            for pool in pools
        ],
    }


def _quotas(resource: str, pool: NodePool, share: Share) -> dict[str, str]:
    limits = {"borrowingLimit": share.borrowing, "lendingLimit": share.lending}
    return {
        "name": resource,
        "nominalQuota": _amount(resource, pool, share.guaranteed),
        **{
            key: _amount(resource, pool, nodes)
            for key, nodes in limits.items()
            if nodes is not None
        },
    }


def _amount(resource: str, pool: NodePool, nodes: int) -> str:
    amount = pool.node_quota.get(resource, 0) * nodes
    if resource == "cpu":
        return quantity.cpu(amount)
    return quantity.memory(amount) if resource == "memory" else str(amount)


def cohort(name: str, pools: Sequence[NodePool], teams: Sequence[TeamConfig]) -> Manifest:
    """Return the Cohort, which owns what no team is guaranteed; any team may borrow it."""
    promised = {p.name: sum(team.guaranteed.get(p.name, 0) for team in teams) for p in pools}
    shared = {
        pool.name: Share(guaranteed=pool.max - promised[pool.name], borrowing=None, lending=None)
        for pool in pools
    }
    return manifest(
        f"{naming.KUEUE_API}/Cohort",
        name,
        "queues",
        spec={"resourceGroups": [resource_group(pools, shared)]},
    )


def cluster_queue(
    team: TeamConfig, cohort_name: str, pools: Sequence[NodePool], *, gang_scale_up: bool = False
) -> Manifest:
    """Return a team's ClusterQueue over all pools that it may use.

    With `gang_scale_up` a run that has quota waits until there are nodes for all of its pods.

    A tier that preempts for its preferred capacity stops there and reclaims it from borrowers; others borrow
    there first and then try the next flavor. All get back their guarantee. See docs/adr/04-capacity-and-quota.md.
    """
    takes_back = TIERS[team.tier].preempts_for_preferred_capacity
    return manifest(
        f"{naming.KUEUE_API}/ClusterQueue",
        naming.cluster_queue(team.name),
        "queues",
        team=team.name,
        spec={
            "cohortName": cohort_name,
            # Anyone may write a LocalQueue; this keeps other namespaces out.
            "namespaceSelector": {"matchLabels": {naming.TEAM: team.name}},
            "queueingStrategy": "BestEffortFIFO",
            "resourceGroups": [
                resource_group(quotas.usable(team, pools), quotas.shares(team, pools))
            ],
            "flavorFungibility": {
                "whenCanBorrow": "MayStopSearch",
                "whenCanPreempt": "MayStopSearch" if takes_back else "TryNextFlavor",
            },
            "preemption": {
                # Guaranteed quota is reclaimed from any borrower.
                "reclaimWithinCohort": "Any",
                "withinClusterQueue": "LowerPriority",
            },
            "fairSharing": {"weight": str(team.weight)},
            "stopPolicy": "None",
            **(_scale_up_checks(pools) if gang_scale_up else {}),
        },
    )


def _scale_up_checks(pools: Sequence[NodePool]) -> dict[str, Any]:
    strategy = checks_strategy(pools)
    return {"admissionChecksStrategy": strategy} if strategy else {}


def _suffix(of: Topology) -> str:
    """Return no suffix for FLAT: a new name would replace the resource on deployed stacks."""
    return "" if of == FLAT else f"-{of.name}"


def workload_priority_class(name: str) -> Manifest:
    return manifest(
        f"{naming.KUEUE_API}/WorkloadPriorityClass",
        name,
        "priorities",
        value=PRIORITIES[name],
        description=DESCRIPTIONS[name],
    )


class KueueQueues(pulumi.ComponentResource):
    """Topologies, flavors, cohort and ClusterQueues.

    Each depends on what it refers to: Kueue's finalizers keep an object that is in use, so a destroy in
    another order would hang.
    """

    def __init__(self, name: str, args: QueuesArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("KueueQueues"), name, None, opts)

        def own(*needs: pulumi.Resource) -> pulumi.ResourceOptions:
            return pulumi.ResourceOptions(parent=self, depends_on=list(needs))

        checks = [GangScaleUp(f"{name}-scale-up", own())] if args.gang_scale_up else []
        levels = {pool_topology(pool) for pool in args.pools if pool.topology}
        topologies = {
            of: KubernetesObject(f"{name}-topology{_suffix(of)}", topology(of), own())
            for of in sorted(levels, key=lambda of: of.name)
        }
        flavors = [
            KubernetesObject(
                f"{name}-flavor-{pool.name}",
                flavor(pool),
                own(*([topologies[pool_topology(pool)]] if pool.topology else [])),
            )
            for pool in args.pools
        ]
        shared = KubernetesObject(
            f"{name}-cohort", cohort(args.cohort, args.pools, args.teams), own(*flavors)
        )
        self.cluster_queues = {
            team.name: KubernetesObject(
                f"{name}-{team.name}",
                cluster_queue(team, args.cohort, args.pools, gang_scale_up=args.gang_scale_up),
                own(shared, *flavors, *checks),
            )
            for team in args.teams
        }
        self.register_outputs({"clusterQueues": [naming.cluster_queue(t.name) for t in args.teams]})


class KueueBackend(SchedulerBackend):
    """Kueue: LocalQueues and ClusterQueues; kube-scheduler places the pods."""

    scheduler = Scheduler.KUEUE
    operator = "kueue"
    holds_pods_back = True
    limits_by_pool = True

    def queue(self, team: str, cohort: str) -> str:
        del cohort
        return naming.local_queue(team)

    def cluster_queue(self, team: str) -> str:
        return naming.cluster_queue(team)

    def deploy(self, name: str, args: QueuesArgs, opts: pulumi.ResourceOptions) -> TeamQueues:
        return TeamQueues(cluster_queues=KueueQueues(name, args, opts).cluster_queues)

    def priority_objects(self, priority: str) -> Mapping[str, Manifest]:
        return {"workload": workload_priority_class(priority)}

    def admission_policies(self, taint_key: str, cohort: str) -> list[Manifest]:
        del cohort
        return [require_team_queue(taint_key), workloads_written_by_kueue()]


BACKEND: Final = KueueBackend()
