"""Simulated nodes: Node objects with a pool's labels, taints and capacity, without machines.

KWOK manages fake nodes, the sandbox's node agent those that run pods as processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pulumi

from infra.domain import catalog, naming, quantity
from infra.domain.catalog import InstanceType
from infra.domain.pools import NodePool, Nodes
from infra.kubernetes.objects import Manifest, metadata
from infra.kubernetes.resources import KubernetesObject

_STORAGE = 100 * quantity.GIB

NODES_PER_RACK: Final = 4
"""Nodes per rack of GPU servers, a typical number limited by power."""


def node_name(pool: NodePool, index: int) -> str:
    """Return the name of a simulated node, which is also its host name."""
    return f"{pool.name}-{index}"


def _resources(instance: InstanceType, shares: int, milli_cpu: int, memory: int) -> dict[str, str]:
    resources = {
        "cpu": quantity.cpu(milli_cpu),
        "memory": quantity.memory(memory),
        "ephemeral-storage": quantity.memory(_STORAGE),
        "pods": str(instance.max_pods),
    }
    if instance.gpus:
        resources[naming.GPU] = str(instance.gpus * shares)
    if instance.efa_cards:
        resources[naming.EFA] = str(instance.efa_cards)
    return resources


def node(pool: NodePool, index: int) -> Manifest:
    """Return one node of a simulated pool.

    The object is created with its status, since no kubelet registers the node. Types of a mixed pool alternate.
    """
    instance = catalog.load().types[pool.instance_types[index % len(pool.instance_types)]]
    name = node_name(pool, index)
    labels = pool.labels(instance) | {
        naming.HOSTNAME: name,
        naming.OS: "linux",
        naming.ARCH: "amd64",
        naming.REGION: pool.region,
        naming.RACK: f"{pool.name}-{index // NODES_PER_RACK}",
        **naming.object_labels("nodes"),
    }
    kwok = pool.nodes is Nodes.KWOK
    annotations = {naming.KWOK_NODE: "fake"} if kwok else {naming.NODE_RUNTIME: "process"}
    shares = pool.shares_per_gpu
    whole = _resources(instance, shares, instance.vcpu * 1000, instance.memory_gib * quantity.GIB)
    usable = _resources(
        instance, shares, instance.allocatable_milli_cpu, instance.allocatable_memory
    )
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata(name, labels=labels, annotations=annotations),
        "spec": {"taints": [taint.manifest() for taint in pool.taints]} if pool.taints else {},
        "status": {"capacity": whole, "allocatable": usable},
    }


class SimulatedNodePools(pulumi.ComponentResource):
    """Node objects of pools with `process` or `kwok` nodes; each gets its maximum of nodes."""

    def __init__(self, name: str, pools: Sequence[NodePool], opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("SimulatedNodePools"), name, None, opts)
        self.nodes = [
            KubernetesObject(
                f"{name}-{node_name(pool, index)}",
                node(pool, index),
                # The provider updates no status.
                pulumi.ResourceOptions(
                    parent=self, replace_on_changes=["status"], delete_before_replace=True
                ),
            )
            for pool in pools
            for index in range(pool.max)
        ]
        self.register_outputs({"nodes": {pool.name: pool.max for pool in pools}})
