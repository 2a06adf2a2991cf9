"""Where the platform checks itself: a namespace, a queue that yields to everybody, and templates of checks.

No team's quota is touched: Jobs on GPUs borrow what nobody uses, at the lowest priority, and are the first to
be preempted; the check of queues has a flavor of its own that stands for no node.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pulumi

from infra.domain import fabric, naming
from infra.domain.platform import Platform
from infra.domain.pools import NodePool, Nodes, Workload, topology_aware
from infra.domain.topology import gang_level
from infra.kubernetes import network_policy
from infra.kubernetes.objects import KubernetesObject, Manifest, metadata
from infra.queueing import kueue
from infra.queueing.backends import backend
from infra.queueing.quotas import Share
from infra.validation import jobs
from infra.validation.jobs import COMPONENT, QUEUE_ROOM, QUEUEING, Surroundings

SPACE: Final = naming.VALIDATION_NAMESPACE
_FACTS_KEY: Final = "stack.json"


@dataclass(frozen=True, kw_only=True)
class ValidationArgs:
    """The stack, as far as checks and commands on it must know it."""

    platform: Platform
    operators: tuple[str, ...]
    """Controllers that the cluster has, by their names in the stack file."""
    image: str
    """The trainer's, by digest."""
    signed_images: bool = False
    """Images without an accepted signature are refused here, too."""
    weekly: bool = False
    """Pools that always have nodes are checked on Mondays."""
    min_gbps: Mapping[str, float] = field(default_factory=dict)
    """By pool, bus bandwidth in GB/s below which its collective check fails."""

    @property
    def queued(self) -> bool:
        """Whether Jobs go through Kueue; another scheduler has no queue that yields so."""
        return backend(self.platform.scheduler).holds_pods_back

    @property
    def gpu_pools(self) -> tuple[NodePool, ...]:
        """All of them."""
        return tuple(p for p in self.platform.pools if p.workload is Workload.GPU_TRAINING)

    @property
    def cpu_pool(self) -> NodePool | None:
        """Where the check of queues runs; None: wherever the scheduler likes."""
        pool = self.platform.cpu_pool
        return pool if pool and pool.nodes is not Nodes.KWOK else None


def _meta(name: str) -> Manifest:
    return metadata(name, namespace=SPACE, labels=naming.object_labels(COMPONENT))


def namespace(*, signed: bool) -> Manifest:
    """On Pod Security's strictest level."""
    labels = naming.object_labels(COMPONENT)
    for mode in ("enforce", "audit", "warn"):
        labels[f"pod-security.kubernetes.io/{mode}"] = "restricted"
        labels[f"pod-security.kubernetes.io/{mode}-version"] = "latest"
    if signed:
        labels[naming.SIGNED_IMAGES] = "true"
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata(SPACE, labels=labels)}


def service_account() -> Manifest:
    """It may do nothing in the API, so its pods get no token."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _meta(COMPONENT),
        "automountServiceAccountToken": False,
    }


def service() -> Manifest:
    """Names for pods, also before they are ready: they meet by them."""
    meta = _meta(COMPONENT)
    meta["annotations"] = {naming.SKIP_AWAIT: "true"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta,
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {naming.COMPONENT: COMPONENT},
        },
    }


def network_policies() -> list[Manifest]:
    """Pods here reach each other and name resolution, and nothing else reaches them or is reached."""
    each_other: list[dict[str, Any]] = [{"podSelector": {}}]
    specs: dict[str, dict[str, Any]] = {
        "default-deny": {"policyTypes": ["Ingress", "Egress"]},
        "allow-dns": {"policyTypes": ["Egress"], "egress": [network_policy.name_resolution()]},
        "allow-each-other": {
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": each_other}],
            "egress": [{"to": each_other}],
        },
    }
    return [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": _meta(name),
            "spec": {"podSelector": {}, **spec},
        }
        for name, spec in specs.items()
    ]


def flavor(cpu_pool: NodePool | None) -> Manifest:
    """Of the check of queues: no other queue has it."""
    labels = {"nodeLabels": {naming.POOL: cpu_pool.name}} if cpu_pool else {}
    return {
        "apiVersion": naming.KUEUE_API,
        "kind": "ResourceFlavor",
        "metadata": metadata(QUEUEING, labels=naming.object_labels(COMPONENT)),
        "spec": labels,
    }


def borrowing_queue(args: ValidationArgs) -> Manifest:
    """A queue over all GPU pools that owns nothing of them, and is the first to give back."""
    nothing = {p.name: Share(guaranteed=0, borrowing=None, lending=None) for p in args.gpu_pools}
    return _cluster_queue(
        COMPONENT,
        kueue.resource_group(args.gpu_pools, nothing),
        cohortName=args.platform.cohort,
        # No weight is an infinite share: whoever else wants what it borrows goes first.
        fairSharing={"weight": "0"},
        flavorFungibility={"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
        preemption={"reclaimWithinCohort": "Never", "withinClusterQueue": "Never"},
    )


def own_queue() -> Manifest:
    """A queue with room for one Job, where a second of a higher priority takes its place."""
    resources = [{"name": name, "nominalQuota": room} for name, room in QUEUE_ROOM.items()]
    group = {
        "coveredResources": list(QUEUE_ROOM),
        "flavors": [{"name": QUEUEING, "resources": resources}],
    }
    preemption = {"reclaimWithinCohort": "Never", "withinClusterQueue": "LowerPriority"}
    return _cluster_queue(QUEUEING, group, preemption=preemption)


def _cluster_queue(name: str, group: Mapping[str, Any], **spec: Any) -> Manifest:
    return {
        "apiVersion": naming.KUEUE_API,
        "kind": "ClusterQueue",
        "metadata": metadata(name, labels=naming.object_labels(COMPONENT)),
        "spec": {
            "namespaceSelector": network_policy.in_namespace(SPACE),
            "queueingStrategy": "BestEffortFIFO",
            "resourceGroups": [dict(group)],
            "stopPolicy": "None",
            **spec,
        },
    }


def local_queue(name: str) -> Manifest:
    """The way to the ClusterQueue of the same name."""
    return {
        "apiVersion": naming.KUEUE_API,
        "kind": "LocalQueue",
        "metadata": _meta(name),
        "spec": {"clusterQueue": name, "stopPolicy": "None"},
    }


def stack_facts(args: ValidationArgs) -> Manifest:
    """What the stack consists of, and what its nodes must show."""
    platform = args.platform
    facts = {
        "stack": platform.stack,
        "cluster": platform.cluster,
        "scheduler": platform.scheduler.value,
        "pools": [_pool_facts(pool) for pool in platform.pools],
        "teams": [
            {"name": t.name, "tier": t.tier, "namespace": t.namespace, "queue": t.local_queue}
            for t in platform.teams.values()
        ],
        "operators": list(args.operators),
        "expected": {pool.name: _expected_facts(pool, args) for pool in platform.pools},
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _meta(naming.STACK_FACTS),
        "data": {_FACTS_KEY: json.dumps(facts, indent=1, sort_keys=True) + "\n"},
    }


def _pool_facts(pool: NodePool) -> dict[str, Any]:
    return {
        "name": pool.name,
        "workload": pool.workload.value,
        "nodes": pool.nodes.value,
        "capacity": pool.capacity.value,
        "min": pool.min,
        "max": pool.max,
        "gpusPerNode": pool.gpus_per_node,
        "sharing": pool.sharing.mode.value if pool.sharing else None,
        "gpuModel": ", ".join(pool.gpu_models),
        "network": pool.network.value,
        "zone": pool.zone,
        "instanceTypes": list(pool.instance_types),
    }


def _expected_facts(pool: NodePool, args: ValidationArgs) -> dict[str, Any]:
    """Of each node: devices to allocate; of the network: MTU in bytes and bus bandwidth in GB/s."""
    devices = {naming.GPU: pool.gpus_per_node, **pool.fabric_devices}
    return {
        "allocatable": {name: count for name, count in devices.items() if count},
        "mtu": fabric.expected_mtu(pool),
        "minGBps": args.min_gbps.get(pool.name),
    }


def surroundings(args: ValidationArgs) -> Surroundings:
    """What the templates of pools know."""
    packed = args.queued and topology_aware(args.gpu_pools)
    return Surroundings(
        image=args.image,
        queue=COMPONENT if args.queued else "",
        weekly=args.weekly,
        min_gbps=args.min_gbps,
        topology={p.name: gang_level((p,)) for p in args.gpu_pools} if packed else {},
    )


def templates(args: ValidationArgs) -> list[Manifest]:
    """Every CronJob."""
    found = jobs.templates(args.platform.pools, surroundings(args))
    return found + (jobs.queueing(args.image, args.cpu_pool) if args.queued else [])


class Validation(pulumi.ComponentResource):
    """All of it. The cohort, its flavors and the priority classes come before."""

    def __init__(self, name: str, args: ValidationArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("Validation"), name, None, opts)

        def make(suffix: str, manifest: Manifest, *needs: pulumi.Resource) -> KubernetesObject:
            own = pulumi.ResourceOptions(parent=self, depends_on=list(needs))
            return KubernetesObject(f"{name}-{suffix}", manifest, own)

        home = make("namespace", namespace(signed=args.signed_images))
        held = [
            make("service-account", service_account(), home),
            make("service", service(), home),
            *(make(one["metadata"]["name"], one, home) for one in network_policies()),
        ]
        if args.queued:
            place = make("flavor", flavor(args.cpu_pool))
            queues = [
                make("borrowing-queue", borrowing_queue(args)),
                make("own-queue", own_queue(), place),
            ]
            held += [
                make(f"queue-{one}", local_queue(one), home, *queues)
                for one in (COMPONENT, QUEUEING)
            ]
        found = templates(args)
        for manifest in found:
            make(manifest["metadata"]["name"], manifest, *held)
        make("facts", stack_facts(args), home)
        self.register_outputs({"templates": [one["metadata"]["name"] for one in found]})
