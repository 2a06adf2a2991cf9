"""Sharing: GPUs that are sliced in time, or by MPS, have no wall between the faults of their users."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

from .model import UNKNOWN, Config, Resource, StackRule, Violation, dig, elements, mapping, number
from .names import TIER_LABEL, TIER_PRODUCTION
from .node_pools import NodePool, pools_and_nodes
from .pools import gpu_pool
from .stack import CLUSTER_QUEUE, RESOURCE_FLAVOR, Stack, flavor_quotas, name_of
from .workloads import namespace_of

_CONFIG_LABEL: Final = "nvidia.com/device-plugin.config"
"""On a node: which configuration of the device plugin it follows, instead of the default one."""
_CONFIG_MAP: Final = "kubernetes:core/v1:ConfigMap"
_NAMESPACE: Final = "kubernetes:core/v1:Namespace"
_RELEASE: Final = "kubernetes:helm.sh/v3:Release"
_MODES: Final = {"timeSlicing": "time-slicing", "mps": "MPS"}
"""Keys of the plugin's `sharing`, and how people call them."""


@dataclass(frozen=True, kw_only=True)
class _Slicing:
    """One configuration of the device plugin that hands a GPU to several pods."""

    resource: Resource
    path: str
    key: str
    """What a node's label, or the default, calls it by."""
    mode: str


def _mode(value: Any) -> str:
    """How a configuration shares GPUs; empty: it does not."""
    if isinstance(value, str):
        try:
            value = yaml.safe_load(value) if any(mode in value for mode in _MODES) else None
        except yaml.YAMLError:
            return ""
    for key, mode in _MODES.items():
        shared = elements(dig(value, "sharing", key, "resources"))
        if any((number(dig(entry, "replicas")) or 0) > 1 for entry in shared):
            return mode
    return ""


def _found(resource: Resource, value: Any, path: str) -> Iterator[_Slicing]:
    for key, child in mapping(value).items():
        where = f"{path}.{key}"
        if mode := _mode(child):
            yield _Slicing(resource=resource, path=where, key=str(key), mode=mode)
        else:
            yield from _found(resource, child, where)


def _slicings(resources: Sequence[Resource]) -> Iterator[_Slicing]:
    for resource in resources:
        if resource.type == _CONFIG_MAP:
            yield from _found(resource, resource.props.get("data"), "data")
        elif resource.type == _RELEASE:
            yield from _found(resource, resource.props.get("values"), "values")


def _default_keys(resources: Sequence[Resource]) -> set[Any]:
    """What nodes without the label follow; empty where the stack does not say."""
    found: list[Any] = []
    for resource in resources:
        if resource.type.endswith(":ClusterPolicy"):
            found.append(dig(resource.props, "spec", "devicePlugin", "config", "default"))
        elif resource.type == _RELEASE:
            values = resource.props.get("values")
            found.append(dig(values, "devicePlugin", "config", "default"))
            found.append(dig(values, "config", "default"))
    return {key for key in found if key is UNKNOWN or (isinstance(key, str) and key)}


def _follows(pool: NodePool, key: str, default_keys: set[Any]) -> bool:
    own = mapping(pool.labels).get(_CONFIG_LABEL)
    if own is not None:
        return bool(own == key)
    return not default_keys or key in default_keys


def _queues(pool: NodePool, stack: Stack) -> list[str]:
    """ClusterQueues that may use the pool, by a quota or by borrowing."""
    flavors = {
        name_of(flavor)
        for flavor in stack.kueue(RESOURCE_FLAVOR)
        if pool.has(mapping(dig(flavor.props, "spec", "nodeLabels")))
    }
    return sorted(
        name_of(queue)
        for queue in stack.kueue(CLUSTER_QUEUE)
        if any(name in flavors for name, _ in flavor_quotas(queue))
    )


def _of_tier(queues: Sequence[str], tier: str, stack: Stack) -> list[str]:
    """Those of the ClusterQueues to which a LocalQueue in a namespace of this tier leads."""
    namespaces = {
        name_of(resource)
        for resource in stack.resources
        if resource.type == _NAMESPACE
        and dig(resource.props, "metadata", "labels", TIER_LABEL) == tier
    }
    led = {
        dig(local.props, "spec", "clusterQueue")
        for local in stack.kueue("LocalQueue")
        if namespace_of(local.props) in namespaces
    }
    return [queue for queue in queues if queue in led]


def _violation(slicing: _Slicing, pool: NodePool, of: Sequence[str], allowed: str) -> Violation:
    return Violation(
        path=slicing.path,
        got=f"{slicing.mode} on the pool {pool.name} of {', '.join(of)}",
        allowed=f"{slicing.mode} on a pool of {allowed}",
        remedy=f"label a team's own pool with {_CONFIG_LABEL}, or use MIG",
        urn=slicing.resource.urn,
    )


def _check(resources: Sequence[Resource], config: Config) -> Iterable[Violation]:
    slicings = list(_slicings(resources))
    if not slicings:
        return
    stack, default_keys = Stack(resources), _default_keys(resources)
    pools: Mapping[str, NodePool] = {
        pool.name: pool for pool in pools_and_nodes(resources) if gpu_pool(pool.resource)
    }
    for slicing in slicings:
        for pool in pools.values():
            queues = _queues(pool, stack)
            if not _follows(pool, slicing.key, default_keys):
                continue
            if len(queues) > 1:
                yield _violation(slicing, pool, queues, "one team")
            elif strict := _of_tier(queues, str(config["tier"]), stack):
                yield _violation(slicing, pool, strict, f"a team that is not of {config['tier']}")


TIME_SLICING: Final = StackRule(
    name="time-slicing-one-team",
    description="GPUs are sliced, in time or by MPS, only for one team, and not for production.",
    check=_check,
    schema={
        "tier": {
            "type": "string",
            "default": TIER_PRODUCTION,
            "description": "Tier that trains on whole GPUs, as in the label trainyard.dev/tier",
        }
    },
)
