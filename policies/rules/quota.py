"""Quota: queues guarantee no more GPUs than their pools have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from infra.domain import naming

from .model import Config, Resource, StackRule, Violation, dig, mapping, number
from .node_pools import NodePool, pools_and_nodes
from .resource_types import NODE
from .stack import CLUSTER_QUEUE, COHORT, RESOURCE_FLAVOR, Stack, flavor_quotas, name_of

_SHARING_LABELS: Final = (naming.DEVICE_PLUGIN_CONFIG, naming.MIG_CONFIG)
"""Labels of nodes that share GPUs; the device plugin's configuration sets how many ways."""


def _pool_gpus(pool: NodePool) -> float | None:
    """Return the pool's GPUs at its maximum size with its smallest type; None if unknown."""
    if pool.resource.type == NODE:
        capacity = mapping(dig(pool.resource.props, "status", "capacity"))
        return number(capacity.get(naming.GPU, 0)) if capacity else None
    shared = any(label in mapping(pool.labels) for label in _SHARING_LABELS)
    if shared or pool.max_nodes is None or not pool.known_types:
        return None
    most = pool.max_nodes * min(one.gpus for one in pool.known_types)
    limit = number(dig(pool.resource.props, "spec", "limits", naming.GPU))
    return most if limit is None else min(most, limit)


def _capacity(flavor: Resource, pools: Sequence[NodePool]) -> float | None:
    """Return the GPUs of all pools and nodes that match the flavor; None if unknown.

    A flavor without a match in the stack uses nodes from elsewhere.
    """
    wanted = mapping(dig(flavor.props, "spec", "nodeLabels"))
    counts = [_pool_gpus(pool) for pool in pools if pool.has(wanted)]
    known = [count for count in counts if count is not None]
    return sum(known) if counts and len(known) == len(counts) else None


def _check(resources: Sequence[Resource], _: Config) -> Iterable[Violation]:
    stack, pools = Stack(resources), list(pools_and_nodes(resources))
    shares: dict[str, list[tuple[str, float]]] = {}
    for queue in (*stack.kueue(CLUSTER_QUEUE), *stack.kueue(COHORT)):
        for name, quotas in flavor_quotas(queue):
            if count := number(quotas.get(naming.GPU)):
                shares.setdefault(name, []).append((name_of(queue), count))
    for flavor in stack.kueue(RESOURCE_FLAVOR):
        capacity, own = _capacity(flavor, pools), shares.get(name_of(flavor), [])
        total = sum(count for _, count in own)
        if capacity is not None and total > capacity:
            yield Violation(
                f"ResourceFlavor {name_of(flavor)}",
                f"nominal quotas of {total:g} GPUs: "
                + " + ".join(f"{count:g} ({holder})" for holder, count in own),
                f"at most {capacity:g}, the GPUs of its nodes",
                "lower a team's quota or the cohort's, or enlarge the pool",
                flavor.urn,
            )


QUOTA_FITS_POOLS: Final = StackRule(
    name="quota-fits-pools",
    description="Queues and cohorts guarantee no more GPUs of a flavor than its pools may have.",
    check=_check,
)
