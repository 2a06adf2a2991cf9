"""Quota: the queues promise no more GPUs than the pools behind them have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from .model import Config, Resource, StackRule, Violation, dig, mapping
from .names import GPU_RESOURCE
from .stack import CLUSTER_QUEUE, RESOURCE_FLAVOR, Stack, flavor_quotas, name_of

_NODE: Final = "kubernetes:core/v1:Node"


def _whole(value: Any) -> int | None:
    """GPUs come in whole numbers, as text or as a number; None if not known yet."""
    text = str(value)
    return int(text) if text.isdecimal() else None


def _gpus_of(node: Resource) -> int | None:
    """A node's GPUs; None if not known yet: a preview does not show the status of a new object."""
    capacity = dig(node.props, "status", "capacity")
    return _whole(capacity.get(GPU_RESOURCE, 0)) if isinstance(capacity, Mapping) else None


def _capacity(flavor: Resource, nodes: Sequence[Resource]) -> int | None:
    """GPUs of the stack's nodes that match the flavor; None if not known.

    A flavor without a node in the stack gets its nodes from a cloud's autoscaling group, whose size
    a preview cannot know.
    """
    wanted = mapping(dig(flavor.props, "spec", "nodeLabels"))
    counts = [
        _gpus_of(node)
        for node in nodes
        if wanted and wanted.items() <= mapping(dig(node.props, "metadata", "labels")).items()
    ]
    known = [count for count in counts if count is not None]
    return sum(known) if counts and len(known) == len(counts) else None


def _promised(stack: Stack) -> Mapping[str, list[tuple[Resource, int]]]:
    """Per flavor: the ClusterQueues that promise GPUs of it, and how many."""
    promised: dict[str, list[tuple[Resource, int]]] = {}
    for queue in stack.kueue(CLUSTER_QUEUE):
        for flavor, quotas in flavor_quotas(queue):
            count = _whole(quotas.get(GPU_RESOURCE, 0))
            if count:
                promised.setdefault(flavor, []).append((queue, count))
    return promised


def _check(resources: Sequence[Resource], _: Config) -> Iterable[Violation]:
    stack = Stack(resources)
    nodes = [resource for resource in resources if resource.type == _NODE]
    promised = _promised(stack)
    for flavor in stack.kueue(RESOURCE_FLAVOR):
        capacity, shares = _capacity(flavor, nodes), promised.get(name_of(flavor), [])
        total = sum(count for _, count in shares)
        if capacity is None or total <= capacity:
            continue
        parts = " + ".join(f"{count} ({name_of(queue)})" for queue, count in shares)
        yield Violation(
            path=f"ResourceFlavor {name_of(flavor)}",
            got=f"nominal quotas of {total} GPUs: {parts}",
            allowed=f"{capacity}, what its nodes have",
            remedy="lower a team's nominal quota, and let it borrow from the cohort",
            urn=flavor.urn,
        )


QUOTA_FITS_POOLS: Final = StackRule(
    name="quota-fits-pools",
    description="ClusterQueues promise no more GPUs of a flavor than its nodes have.",
    check=_check,
)
