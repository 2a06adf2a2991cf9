"""Sharing: GPUs that are sliced in time, or by MPS, have no wall between the faults of their users."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

from .model import UNKNOWN, Config, Resource, StackRule, Violation, dig, elements, mapping, number
from .names import DEVICE_PLUGIN_CONFIG, TIER_PRODUCTION, VALIDATION_NAMESPACE
from .node_pools import NodePool, pools_and_nodes
from .pools import gpu_pool
from .stack import CLUSTER_QUEUE, RESOURCE_FLAVOR, Stack, flavor_quotas, name_of
from .tokens import HELM_RELEASE

_CONFIG_MAP: Final = "kubernetes:core/v1:ConfigMap"
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
        elif resource.type == HELM_RELEASE:
            yield from _found(resource, resource.props.get("values"), "values")


def _default_keys(resources: Sequence[Resource]) -> set[Any]:
    """What nodes without the label follow; empty where the stack does not say."""
    found: list[Any] = []
    for resource in resources:
        if resource.type.endswith(":ClusterPolicy"):
            found.append(dig(resource.props, "spec", "devicePlugin", "config", "default"))
        elif resource.type == HELM_RELEASE:
            values = resource.props.get("values")
            found.append(dig(values, "devicePlugin", "config", "default"))
            found.append(dig(values, "config", "default"))
    return {key for key in found if key is UNKNOWN or (isinstance(key, str) and key)}


def _follows(pool: NodePool, key: str, default_keys: set[Any]) -> bool:
    own = mapping(pool.labels).get(DEVICE_PLUGIN_CONFIG)
    if own is not None:
        return bool(own == key)
    return not default_keys or key in default_keys


def _queues(pool: NodePool, stack: Stack) -> list[str]:
    """ClusterQueues of teams that may use the pool, by a quota or by borrowing."""
    flavors = {
        name_of(flavor)
        for flavor in stack.kueue(RESOURCE_FLAVOR)
        if pool.has(mapping(dig(flavor.props, "spec", "nodeLabels")))
    }
    return sorted(
        name_of(queue)
        for queue in stack.kueue(CLUSTER_QUEUE)
        if any(name in flavors for name, _ in flavor_quotas(queue))
        and stack.namespaces_led_to(name_of(queue)) != {VALIDATION_NAMESPACE}
    )


def _sharers(queues: Sequence[str], stack: Stack) -> Sequence[str]:
    """Who would share: the queues, or the namespaces that have one queue together."""
    if len(queues) > 1:
        return queues
    return sorted(name for queue in queues for name in stack.namespaces_led_to(queue))


def _of_tier(queues: Sequence[str], tier: str, stack: Stack) -> list[str]:
    """Those of the ClusterQueues to which a LocalQueue in a namespace of this tier leads."""
    namespaces = stack.namespaces_of_tier(tier)
    return [queue for queue in queues if stack.namespaces_led_to(queue) & namespaces]


def _violation(slicing: _Slicing, pool: NodePool, of: Sequence[str], allowed: str) -> Violation:
    return Violation(
        path=slicing.path,
        got=f"{slicing.mode} on the pool {pool.name} of {', '.join(of)}",
        allowed=f"{slicing.mode} on a pool of {allowed}",
        remedy=f"label a team's own pool with {DEVICE_PLUGIN_CONFIG}, or use MIG",
        urn=slicing.resource.urn,
    )


def _check(resources: Sequence[Resource], config: Config) -> Iterable[Violation]:
    slicings = list(_slicings(resources))
    if not slicings:
        return
    stack, default_keys = Stack(resources), _default_keys(resources)
    pools: Mapping[tuple[str, Any], NodePool] = {
        (pool.name, mapping(pool.labels).get(DEVICE_PLUGIN_CONFIG)): pool
        for pool in pools_and_nodes(resources)
        if gpu_pool(pool.resource)
    }
    for slicing in slicings:
        for pool in pools.values():
            queues = _queues(pool, stack)
            if not _follows(pool, slicing.key, default_keys):
                continue
            if len(sharers := _sharers(queues, stack)) > 1:
                yield _violation(slicing, pool, sharers, "one team")
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
