"""Validation: a namespace, a queue that yields to all others, and templates of node checks.

No team's quota is used: Jobs on GPUs borrow idle quota at the lowest priority and are preempted first; the queue
check has a flavor of its own that matches no node.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pulumi

from infra.domain import fabric, naming
from infra.domain.platform import Platform
from infra.domain.pools import NodePool, Nodes, Workload
from infra.domain.topology import gang_level
from infra.kubernetes import network_policy
from infra.kubernetes.objects import Manifest, manifest, metadata
from infra.kubernetes.resources import KubernetesObject
from infra.queueing import kueue
from infra.queueing.backends import backend
from infra.queueing.quotas import Share
from infra.validation import jobs
from infra.validation.jobs import COMPONENT, QUEUE_ROOM, QUEUEING, TemplateContext

SPACE: Final = naming.VALIDATION_NAMESPACE
_FACTS_KEY: Final = "stack.json"


@dataclass(frozen=True, kw_only=True)
class ValidationArgs:
    """Facts of the stack that checks and operator commands need."""

    platform: Platform
    operators: tuple[str, ...]
    """Installed operators, by their names in the stack file."""
    image: str
    """The trainer's, by digest."""
    signed_images: bool = False
    """Whether images without an accepted signature are rejected here, too."""
    weekly: bool = False
    """Whether pools with permanent nodes are checked on Mondays."""
    min_gbps: Mapping[str, float] = field(default_factory=dict)
    """By pool, bus bandwidth in GB/s below which its collective check fails."""

    @property
    def queued(self) -> bool:
        """Whether Jobs are queued; other schedulers have no queue that yields like this."""
        return backend(self.platform.scheduler).holds_pods_back

    @property
    def gpu_pools(self) -> tuple[NodePool, ...]:
        return tuple(p for p in self.platform.pools if p.workload is Workload.GPU_TRAINING)

    @property
    def cpu_pool(self) -> NodePool | None:
        """Pool of the queue check; None: the scheduler chooses."""
        pool = self.platform.cpu_pool
        return pool if pool and pool.nodes is not Nodes.KWOK else None


def _here(kind: str, name: str, **parts: Any) -> Manifest:
    return manifest(kind, name, COMPONENT, namespace=SPACE, **parts)


def namespace(*, signed: bool) -> Manifest:
    """Return the namespace, at Pod Security's strictest level."""
    labels = naming.object_labels(COMPONENT)
    for mode in ("enforce", "audit", "warn"):
        labels[f"pod-security.kubernetes.io/{mode}"] = "restricted"
        labels[f"pod-security.kubernetes.io/{mode}-version"] = "latest"
    if signed:
        labels[naming.SIGNED_IMAGES] = "true"
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata(SPACE, labels=labels)}


def service_account() -> Manifest:
    """Return the ServiceAccount; it has no permissions, so pods get no token."""
    return _here("v1/ServiceAccount", COMPONENT, automountServiceAccountToken=False)


def service() -> Manifest:
    """Return the headless Service that names pods for their rendezvous, also before they are ready."""
    return _here(
        "v1/Service",
        COMPONENT,
        annotations={naming.SKIP_AWAIT: "true"},
        spec={
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {naming.COMPONENT: COMPONENT},
        },
    )


def network_policies() -> list[Manifest]:
    """Return policies that allow only traffic among pods here, and DNS."""
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
        _here("networking.k8s.io/v1/NetworkPolicy", name, spec={"podSelector": {}, **spec})
        for name, spec in specs.items()
    ]


def flavor(cpu_pool: NodePool | None) -> Manifest:
    """Return the flavor of the queue check, which no other queue has."""
    labels = {"nodeLabels": {naming.POOL: cpu_pool.name}} if cpu_pool else {}
    return manifest(f"{naming.KUEUE_API}/ResourceFlavor", QUEUEING, COMPONENT, spec=labels)


def borrowing_queue(args: ValidationArgs) -> Manifest:
    """Return a ClusterQueue over all GPU pools that owns nothing and is preempted first."""
    nothing = {p.name: Share(guaranteed=0, borrowing=None, lending=None) for p in args.gpu_pools}
    return _cluster_queue(
        COMPONENT,
        kueue.resource_group(args.gpu_pools, nothing),
        cohortName=args.platform.cohort,
        # Weight 0 counts as an infinite share: every other queue goes first.
        fairSharing={"weight": "0"},
        flavorFungibility={"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
        preemption={"reclaimWithinCohort": "Never", "withinClusterQueue": "Never"},
    )


def own_queue() -> Manifest:
    """Return a ClusterQueue with room for one Job, in which a Job of higher priority preempts it."""
    resources = [{"name": name, "nominalQuota": room} for name, room in QUEUE_ROOM.items()]
    group = {
        "coveredResources": list(QUEUE_ROOM),
        "flavors": [{"name": QUEUEING, "resources": resources}],
    }
    preemption = {"reclaimWithinCohort": "Never", "withinClusterQueue": "LowerPriority"}
    return _cluster_queue(QUEUEING, group, preemption=preemption)


def _cluster_queue(name: str, group: Mapping[str, Any], **spec: Any) -> Manifest:
    return manifest(
        f"{naming.KUEUE_API}/ClusterQueue",
        name,
        COMPONENT,
        spec={
            "namespaceSelector": network_policy.in_namespace(SPACE),
            "queueingStrategy": "BestEffortFIFO",
            "resourceGroups": [dict(group)],
            "stopPolicy": "None",
            **spec,
        },
    )


def local_queue(name: str) -> Manifest:
    spec = {"clusterQueue": name, "stopPolicy": "None"}
    return _here(f"{naming.KUEUE_API}/LocalQueue", name, spec=spec)


def stack_facts(args: ValidationArgs) -> Manifest:
    """Return the ConfigMap with the stack's facts and the expected properties of its nodes."""
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
    text = json.dumps(facts, indent=1, sort_keys=True) + "\n"
    return _here("v1/ConfigMap", naming.STACK_FACTS, data={_FACTS_KEY: text})


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
        "taint": f"{pool.taints[0].key}={pool.taints[0].value}" if pool.taints else None,
    }


def _expected_facts(pool: NodePool, args: ValidationArgs) -> dict[str, Any]:
    """Return allocatable devices per node, MTU in bytes and least bus bandwidth in GB/s."""
    devices = {naming.GPU: pool.gpus_per_node, **pool.fabric_devices}
    return {
        "allocatable": {name: count for name, count in devices.items() if count},
        "mtu": fabric.expected_mtu(pool),
        "minGBps": args.min_gbps.get(pool.name),
    }


def template_context(args: ValidationArgs) -> TemplateContext:
    return TemplateContext(
        image=args.image,
        queue=COMPONENT if args.queued else "",
        weekly=args.weekly,
        min_gbps=args.min_gbps,
        topology={p.name: gang_level((p,)) for p in args.gpu_pools if args.queued and p.topology},
    )


def templates(args: ValidationArgs) -> list[Manifest]:
    found = jobs.templates(args.platform.pools, template_context(args))
    return found + (jobs.queueing(args.image, args.cpu_pool) if args.queued else [])


class Validation(pulumi.ComponentResource):
    """All validation objects; created after the cohort, its flavors and the priority classes."""

    def __init__(self, name: str, args: ValidationArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("Validation"), name, None, opts)

        def make(suffix: str, one: Manifest, *needs: pulumi.Resource) -> KubernetesObject:
            own = pulumi.ResourceOptions(parent=self, depends_on=list(needs))
            return KubernetesObject(f"{name}-{suffix}", one, own)

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
                make(f"queue-{queue}", local_queue(queue), home, *queues)
                for queue in (COMPONENT, QUEUEING)
            ]
        found = templates(args)
        for one in found:
            make(one["metadata"]["name"], one, *held)
        make("facts", stack_facts(args), home)
        self.register_outputs({"templates": [one["metadata"]["name"] for one in found]})
