"""GPU sharing: time-slicing and MPS do not isolate the faults of their users."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

from .gpu_pools import gpu_pool
from .model import UNKNOWN, Config, Resource, StackRule, Violation, dig, elements, mapping, number
from .names import DEVICE_PLUGIN_CONFIG, TIER_PRODUCTION, VALIDATION_NAMESPACE
from .node_pools import NodePool, pools_and_nodes
from .resource_types import HELM_RELEASE
from .stack import CLUSTER_QUEUE, RESOURCE_FLAVOR, Stack, flavor_quotas, name_of

_CONFIG_MAP: Final = "kubernetes:core/v1:ConfigMap"
_MODES: Final = {"timeSlicing": "time-slicing", "mps": "MPS"}
"""Names of the modes by key of the device plugin's `sharing`."""


@dataclass(frozen=True, kw_only=True)
class _SharingConfig:
    """One device plugin configuration that shares GPUs between pods."""

    resource: Resource
    path: str
    key: str
    """Its name in the node label, or in the default."""
    mode: str


def _mode(value: Any) -> str:
    """Return the sharing mode of a configuration; empty if it does not share GPUs."""
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


def _find_configs(resource: Resource, value: Any, path: str) -> Iterator[_SharingConfig]:
    for key, child in mapping(value).items():
        where = f"{path}.{key}"
        if mode := _mode(child):
            yield _SharingConfig(resource=resource, path=where, key=str(key), mode=mode)
        else:
            yield from _find_configs(resource, child, where)


def _sharing_configs(resources: Sequence[Resource]) -> Iterator[_SharingConfig]:
    for resource in resources:
        if resource.type == _CONFIG_MAP:
            yield from _find_configs(resource, resource.props.get("data"), "data")
        elif resource.type == HELM_RELEASE:
            yield from _find_configs(resource, resource.props.get("values"), "values")


def _default_keys(resources: Sequence[Resource]) -> set[Any]:
    """Return the configuration of nodes without the label; empty if the stack does not set it."""
    found: list[Any] = []
    for resource in resources:
        if resource.type.endswith(":ClusterPolicy"):
            found.append(dig(resource.props, "spec", "devicePlugin", "config", "default"))
        elif resource.type == HELM_RELEASE:
            values = resource.props.get("values")
            found.append(dig(values, "devicePlugin", "config", "default"))
            found.append(dig(values, "config", "default"))
    return {key for key in found if key is UNKNOWN or (isinstance(key, str) and key)}


def _uses_config(pool: NodePool, key: str, default_keys: set[Any]) -> bool:
    own = mapping(pool.labels).get(DEVICE_PLUGIN_CONFIG)
    if own is not None:
        return bool(own == key)
    return not default_keys or key in default_keys


def _queues_of(pool: NodePool, stack: Stack) -> list[str]:
    """Return the ClusterQueues of teams that may use the pool, by quota or by borrowing."""
    flavors = {
        name_of(flavor)
        for flavor in stack.kueue(RESOURCE_FLAVOR)
        if pool.has(mapping(dig(flavor.props, "spec", "nodeLabels")))
    }
    return sorted(
        name_of(queue)
        for queue in stack.kueue(CLUSTER_QUEUE)
        if any(name in flavors for name, _ in flavor_quotas(queue))
        and stack.namespaces_of_queue(name_of(queue)) != {VALIDATION_NAMESPACE}
    )


def _sharers(queues: Sequence[str], stack: Stack) -> Sequence[str]:
    """Return who would share: the queues, or the namespaces that share one queue."""
    if len(queues) > 1:
        return queues
    return sorted(name for queue in queues for name in stack.namespaces_of_queue(queue))


def _queues_of_tier(queues: Sequence[str], tier: str, stack: Stack) -> list[str]:
    """Return the ClusterQueues used by a namespace of this tier."""
    namespaces = stack.namespaces_of_tier(tier)
    return [queue for queue in queues if stack.namespaces_of_queue(queue) & namespaces]


def _violation(
    sharing: _SharingConfig, pool: NodePool, of: Sequence[str], allowed: str
) -> Violation:
    return Violation(
        path=sharing.path,
        got=f"{sharing.mode} on pool {pool.name} of {', '.join(of)}",
        expected=f"{sharing.mode} on a pool of {allowed}",
        remedy=f"label a team's own pool with {DEVICE_PLUGIN_CONFIG}, or use MIG",
        urn=sharing.resource.urn,
    )


def _check(resources: Sequence[Resource], config: Config) -> Iterable[Violation]:
    configs = list(_sharing_configs(resources))
    if not configs:
        return
    stack, default_keys = Stack(resources), _default_keys(resources)
    pools: Mapping[tuple[str, Any], NodePool] = {
        (pool.name, mapping(pool.labels).get(DEVICE_PLUGIN_CONFIG)): pool
        for pool in pools_and_nodes(resources)
        if gpu_pool(pool.resource)
    }
    for sharing in configs:
        for pool in pools.values():
            queues = _queues_of(pool, stack)
            if not _uses_config(pool, sharing.key, default_keys):
                continue
            if len(sharers := _sharers(queues, stack)) > 1:
                yield _violation(sharing, pool, sharers, "one team")
            elif strict := _queues_of_tier(queues, str(config["tier"]), stack):
                yield _violation(sharing, pool, strict, f"a team outside tier {config['tier']}")


TIME_SLICING: Final = StackRule(
    name="time-slicing-one-team",
    description="GPUs are shared by time-slicing or MPS only within one team, and not in production.",
    check=_check,
    schema={
        "tier": {
            "type": "string",
            "default": TIER_PRODUCTION,
            "description": "Tier that may not share GPUs, as in the label trainyard.dev/tier",
        }
    },
)
