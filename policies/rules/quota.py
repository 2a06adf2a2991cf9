"""Quota: queues guarantee no more GPUs than their pools have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from .instance_catalog import instance_types
from .model import Config, Resource, StackRule, Violation, dig, mapping, number
from .names import DEVICE_PLUGIN_CONFIG, GPU_RESOURCE, MIG_CONFIG
from .node_pools import NodePool, pools_and_nodes
from .stack import CLUSTER_QUEUE, COHORT, RESOURCE_FLAVOR, Stack, flavor_quotas, name_of

_NODE: Final = "kubernetes:core/v1:Node"
_SHARING_LABELS: Final = (DEVICE_PLUGIN_CONFIG, MIG_CONFIG)
"""Labels of nodes that share GPUs; the device plugin's configuration sets how many ways."""


def _whole_number(value: Any) -> int | None:
    """Convert text or a number to int; None if not whole or not known yet."""
    found = number(value)
    return int(found) if found is not None and found.is_integer() else None


def _gpus_of_node(node: Resource) -> int | None:
    """Return a node's GPUs; None if unknown, as in previews of new objects."""
    capacity = dig(node.props, "status", "capacity")
    return _whole_number(capacity.get(GPU_RESOURCE, 0)) if isinstance(capacity, Mapping) else None


def _pool_gpus(pool: NodePool) -> int | None:
    """Return the pool's GPUs at its maximum size with its smallest type; None if unknown."""
    if pool.resource.type == _NODE:
        return _gpus_of_node(pool.resource)
    facts = [instance_types().get(name) for name in pool.instance_types]
    gpus = [fact.gpus for fact in facts if fact is not None]
    nodes = _whole_number(pool.max_nodes)
    if nodes is None or not gpus or len(gpus) < len(facts):
        return None
    if any(label in mapping(pool.labels) for label in _SHARING_LABELS):
        return None
    most = nodes * min(gpus)
    limit = _whole_number(dig(pool.resource.props, "spec", "limits", GPU_RESOURCE))
    return most if limit is None else min(most, limit)


def _capacity(flavor: Resource, pools: Sequence[NodePool]) -> int | None:
    """Return the GPUs of all pools and nodes that match the flavor; None if unknown.

    A flavor without a match in the stack uses nodes from elsewhere.
    """
    wanted = mapping(dig(flavor.props, "spec", "nodeLabels"))
    counts = [_pool_gpus(pool) for pool in pools if pool.has(wanted)]
    known = [count for count in counts if count is not None]
    return sum(known) if counts and len(known) == len(counts) else None


def _promised_gpus(stack: Stack) -> Mapping[str, list[tuple[Resource, int]]]:
    """Return by flavor the ClusterQueues and Cohorts with GPU quota, and how many GPUs."""
    promised: dict[str, list[tuple[Resource, int]]] = {}
    for queue in (*stack.kueue(CLUSTER_QUEUE), *stack.kueue(COHORT)):
        for flavor, quotas in flavor_quotas(queue):
            count = _whole_number(quotas.get(GPU_RESOURCE, 0))
            if count:
                promised.setdefault(flavor, []).append((queue, count))
    return promised


def _check(resources: Sequence[Resource], _: Config) -> Iterable[Violation]:
    stack, pools = Stack(resources), list(pools_and_nodes(resources))
    promised = _promised_gpus(stack)
    for flavor in stack.kueue(RESOURCE_FLAVOR):
        capacity, shares = _capacity(flavor, pools), promised.get(name_of(flavor), [])
        total = sum(count for _, count in shares)
        if capacity is None or total <= capacity:
            continue
        parts = " + ".join(f"{count} ({name_of(queue)})" for queue, count in shares)
        yield Violation(
            path=f"ResourceFlavor {name_of(flavor)}",
            got=f"nominal quotas of {total} GPUs: {parts}",
            expected=f"at most {capacity}, the GPUs of its nodes",
            remedy="lower a team's quota or the cohort's, or enlarge the pool",
            urn=flavor.urn,
        )


QUOTA_FITS_POOLS: Final = StackRule(
    name="quota-fits-pools",
    description="Queues and cohorts guarantee no more GPUs of a flavor than its pools may have.",
    check=_check,
)
