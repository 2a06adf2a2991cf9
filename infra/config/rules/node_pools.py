"""Node pools: sizes, instance types, labels, and what their nodes support."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from infra.config.model import StackConfig
from infra.domain import naming
from infra.domain.pools import (
    Autoscaler,
    Capacity,
    Fallback,
    Network,
    NodePool,
    Nodes,
    Reservation,
    ReservationKind,
    Workload,
)
from infra.sections.errors import ConfigIssue, issue, shown

_EC2: Final = (Nodes.MANAGED, Nodes.KARPENTER)
_SELF_MADE: Final = (Nodes.EXISTING, Nodes.PROCESS, Nodes.KWOK)
_OPTIONS: Final = {
    "root_gib": ("rootGiB", _EC2),
    "placement_group": ("placementGroup", _EC2),
    "reservation": ("reservation", _EC2),
    "fallback": ("fallback", (Nodes.KARPENTER,)),
    "topology": ("topology", tuple(one for one in Nodes if one is not Nodes.KARPENTER)),
    "max_unavailable": ("maxUnavailable", (Nodes.MANAGED,)),
}
"""Options of a pool: the key in the file, and the nodes that can have them."""


def _pools(stack: StackConfig) -> Iterator[tuple[str, NodePool]]:
    for index, pool in enumerate(stack.pools):
        yield f"nodePools[{index}]", pool


def _names(nodes: tuple[Nodes, ...]) -> str:
    return " or ".join(n.value for n in nodes)


def check_unique_names(stack: StackConfig) -> Iterator[ConfigIssue]:
    for section, items in (("nodePools", stack.node_pools), ("teams", stack.teams)):
        first: dict[str, int] = {}
        for index, name in enumerate(one.name for one in items):
            if first.setdefault(name, index) != index:
                yield issue(
                    "duplicate",
                    f"{section}[{index}].name",
                    f"{shown(name)} is already used by {section}[{first[name]}]",
                    "names must be unique",
                    "rename one of them",
                )


def check_pool_sizes(stack: StackConfig) -> Iterator[ConfigIssue]:
    for path, pool in _pools(stack):
        if pool.min > pool.max:
            yield issue(
                "min-above-max",
                f"{path}.min",
                f"{pool.min} exceeds max ({pool.max})",
                "must be at most max",
                "lower min or raise max",
            )


def check_instance_types(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Require instance types that match the pool's workload, network and one CPU architecture."""
    for place, pool in _pools(stack):
        for index, instance in enumerate(pool.types):
            path, name = f"{place}.instanceTypes[{index}]", shown(instance.name)
            if pool.workload is Workload.GPU_TRAINING and not instance.gpus:
                yield issue(
                    "type-without-gpu",
                    path,
                    f"{name} has no GPU",
                    "a gpu-training pool requires instance types with GPUs",
                    "choose a GPU type, or set workload: cpu",
                )
            elif pool.workload is Workload.CPU and instance.gpus:
                yield issue(
                    "type-with-gpu",
                    path,
                    f"{name} has {instance.gpus} {'GPU' if instance.gpus == 1 else 'GPUs'}",
                    "a cpu pool requires instance types without GPUs",
                    "choose a CPU type, or set workload: gpu-training",
                )
            elif pool.network is Network.EFA and not instance.efa_cards:
                yield issue(
                    "type-without-efa",
                    path,
                    f"{name} does not support EFA",
                    "network: efa requires instance types with EFA",
                    "choose another type, or set network: tcp",
                )
        architectures = sorted({one.architecture.value for one in pool.types})
        if len(architectures) > 1:
            yield issue(
                "mixed-architectures",
                f"{place}.instanceTypes",
                f"types of {' and '.join(architectures)} are mixed",
                "must have one architecture: a run has one image",
                "split the pool",
            )


def check_cpu_pool(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Require a CPU pool on EKS: the other nodes are tainted, so pods without GPUs would never be scheduled."""
    if stack.eks and not any(pool.workload is Workload.CPU for pool in stack.pools):
        yield issue(
            "cpu-pool-missing",
            "nodePools",
            "no pool has workload: cpu",
            "EKS requires one, for pods without GPUs: system nodes take controllers only",
            "add one; with nodes: karpenter it has no node while it is not used",
        )


def check_labels(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Reject extra labels that the platform or Kubernetes reserves."""
    for path, pool in _pools(stack):
        own = {
            *replace(pool, extra_labels={}).labels(),
            naming.GPU_MODEL,
            naming.INSTANCE_TYPE,
            naming.HOSTNAME,
        }
        for key in pool.extra_labels:
            if key in own:
                yield issue(
                    "reserved-label",
                    f"{path}.labels.{key}",
                    "the platform sets this label",
                    "must be another label",
                    "remove it",
                )
            elif pool.nodes in _EC2 and naming.is_reserved_domain(key.rpartition("/")[0]):
                yield issue(
                    "reserved-domain",
                    f"{path}.labels.{key}",
                    "nodes may not set labels of this domain themselves",
                    "must have no domain, or a domain of your own",
                    "rename it",
                )


def check_node_source(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Require nodes that the cluster's provider offers, and options that the nodes support."""
    allowed = _EC2 if stack.eks else _SELF_MADE
    for index, (path, pool) in enumerate(_pools(stack)):
        if pool.nodes not in allowed:
            yield issue(
                "nodes-provider",
                f"{path}.nodes",
                f"{shown(pool.nodes.value)} is not available with cluster.provider: "
                f"{stack.cluster.provider}",
                f"must be {_names(allowed)}",
                "choose one of them",
            )
        for field, (key, nodes) in _OPTIONS.items():
            if field in stack.node_pools[index].model_fields_set and pool.nodes not in nodes:
                yield issue(
                    "pool-option",
                    f"{path}.{key}",
                    f"not valid on nodes that are {pool.nodes.value}",
                    f"requires nodes: {_names(nodes)}",
                    "remove it, or change nodes",
                )
        if stack.node_pools[index].topology and not stack.scheduler.packs_by_topology:
            yield issue(
                "pool-option",
                f"{path}.topology",
                f"not valid with scheduler: {stack.scheduler.value}",
                "requires scheduler: kueue",
                "remove it",
            )
        if pool.nodes is Nodes.KARPENTER and pool.min:
            yield issue(
                "karpenter-min",
                f"{path}.min",
                f"{pool.min} is not valid for nodes that are karpenter",
                "must be 0: Karpenter launches nodes when pods wait",
                "set it to 0, or set nodes: managed",
            )
        if pool.placement_group and pool.network is not Network.EFA:
            yield issue(
                "placement-group-network",
                f"{path}.placementGroup",
                "a placement group without EFA costs capacity and gains nothing",
                "requires network: efa",
                "remove it, or set network: efa",
            )
        if pool.fallback is Fallback.ON_DEMAND and pool.capacity is not Capacity.SPOT:
            yield issue(
                "fallback-capacity",
                f"{path}.fallback",
                "a fallback in a pool that is on-demand already",
                "requires capacity: spot",
                "remove it, or set capacity: spot",
            )


def check_reservations(stack: StackConfig) -> Iterator[ConfigIssue]:
    for path, pool in _pools(stack):
        if (reserved := pool.reservation) is None:
            continue
        if pool.capacity is Capacity.SPOT:
            yield issue(
                "reservation-on-spot",
                f"{path}.reservation",
                f"a {reserved.kind.value} in a spot pool",
                "requires capacity: on-demand",
                "set capacity: on-demand, or remove it",
            )
        clock = list(_check_clock(f"{path}.reservation", reserved))
        yield from clock
        if len(pool.instance_types) > 1:
            yield issue(
                "reservation-types",
                f"{path}.instanceTypes",
                f"{len(pool.instance_types)} types with a reservation",
                "must be the one reserved type",
                "remove the others",
            )
        scaled = (
            stack.autoscaler is Autoscaler.CLUSTER_AUTOSCALER or pool.nodes is not Nodes.MANAGED
        )
        if stack.eks and reserved.start and not clock and not scaled:
            yield issue(
                "timed-block-unscaled",
                f"{path}.nodes",
                "'managed' with start and end of a capacity block, and nothing scales its node "
                f"group (autoscaler: {stack.autoscaler.value})",
                "requires nodes: karpenter, or autoscaler: cluster-autoscaler",
                "set nodes: karpenter and min: 0, or remove start and end",
            )


def _check_clock(path: str, reserved: Reservation) -> Iterator[ConfigIssue]:
    """Require both ends of a capacity block's time, in this order, and none of other reservations."""
    if reserved.start is None and reserved.end is None:
        return
    if reserved.kind is not ReservationKind.CAPACITY_BLOCK:
        yield issue(
            "reservation-clock",
            path,
            f"start or end in a {reserved.kind.value}, which ends when it is cancelled",
            "only a capacity-block has them",
            "remove start and end",
        )
    elif reserved.start is None or reserved.end is None:
        yield issue(
            "reservation-clock",
            path,
            f"{'start' if reserved.start is None else 'end'} is missing",
            "requires both start and end, or neither",
            "add what aws ec2 describe-capacity-reservations shows",
        )
    elif reserved.end <= reserved.start:
        yield issue(
            "reservation-clock",
            path,
            "end is not after start",
            "must be the times of the capacity block",
            "correct them",
        )


def check_autoscaler(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Require pools for the autoscaler, Karpenter for its pools, and min = max where nothing adds nodes."""
    if stack.eks is None:
        return
    chosen = stack.autoscaler
    found = {nodes: [p for p, pool in _pools(stack) if pool.nodes is nodes] for nodes in _EC2}
    scales = {Autoscaler.KARPENTER: Nodes.KARPENTER, Autoscaler.CLUSTER_AUTOSCALER: Nodes.MANAGED}
    nodes = scales.get(chosen)
    if nodes and not found[nodes]:
        yield issue(
            "autoscaler-unused",
            "autoscaler",
            f"{shown(chosen.value)} has no pool to scale",
            f"requires a pool with nodes: {nodes.value}",
            f"set nodes: {nodes.value} on a pool, or autoscaler: none",
        )
    if found[Nodes.KARPENTER] and chosen is not Autoscaler.KARPENTER:
        yield issue(
            "karpenter-autoscaler",
            f"{found[Nodes.KARPENTER][0]}.nodes",
            "'karpenter' requires autoscaler: karpenter",
            f"must be managed with autoscaler: {chosen.value}",
            "set autoscaler: karpenter, or nodes: managed",
        )
    for path, pool in _pools(stack):
        kind = pool.reservation.kind if pool.reservation else None
        fixed = pool.nodes is Nodes.MANAGED and pool.workload is Workload.GPU_TRAINING
        if chosen is Autoscaler.CLUSTER_AUTOSCALER or kind is ReservationKind.CAPACITY_BLOCK:
            continue
        if fixed and pool.min < pool.max:
            yield issue(
                "fixed-size-pool",
                f"{path}.min",
                f"{pool.min} is below max ({pool.max}), and nothing adds nodes (autoscaler: "
                f"{chosen.value})",
                "must equal max: queues count on all nodes of a managed pool",
                "set autoscaler: cluster-autoscaler, nodes: karpenter, or min to max",
            )


def check_fabric(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Require RoCE and fabric facts on existing nodes only."""
    for index, (path, pool) in enumerate(_pools(stack)):
        roce, nodes = pool.network is Network.ROCE, pool.nodes.value
        given = stack.node_pools[index].fabric
        if roce and pool.nodes is not Nodes.EXISTING:
            yield issue(
                "roce-nodes",
                f"{path}.network",
                f"'roce' is not available on nodes that are {nodes}",
                "requires nodes: existing (EC2 offers EFA instead)",
                "set network: efa or tcp",
            )
        elif roce and not pool.fabric.rdma_resource:
            yield issue(
                "missing",
                f"{path}.fabric.rdmaResource",
                "missing",
                "network: roce requires the resource through which pods get adapters, such as "
                "rdma/hca",
                "add it",
            )
        if given and pool.nodes is not Nodes.EXISTING:
            yield issue(
                "fabric-nodes",
                f"{path}.fabric",
                f"not valid on nodes that are {nodes}",
                "requires nodes: existing (the fabric of other nodes is known)",
                "remove it",
            )
        elif given and not roce:
            for key, value in given.model_dump(by_alias=True).items():
                if key in ("rdmaResource", "adapters", "gidIndex") and value not in (None, (), ""):
                    yield issue(
                        "fabric-network",
                        f"{path}.fabric.{key}",
                        f"not valid with network: {pool.network.value}",
                        "requires network: roce",
                        "remove it, or set network: roce",
                    )
