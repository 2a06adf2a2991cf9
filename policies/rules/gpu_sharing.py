"""GPU sharing: time-slicing and MPS do not isolate the faults of their users."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

from infra.domain import naming
from infra.domain.gpu_sharing import SharingMode
from infra.domain.tier import TIERS

from .model import UNKNOWN, Config, Resource, StackRule, Violation, dig, elements, mapping, number
from .node_pools import NodePool, pools_and_nodes
from .resource_types import CONFIG_MAP, HELM_RELEASE
from .stack import CLUSTER_QUEUE, RESOURCE_FLAVOR, Stack, flavor_quotas, name_of

_MODES: Final = {SharingMode.TIME_SLICING: "time-slicing", SharingMode.MPS: "MPS"}
"""Names of the modes that do not isolate, by key of the device plugin's `sharing`."""
_DEFAULTS: Final = (("devicePlugin", "config", "default"), ("config", "default"))
"""Values of the charts of the GPU operator and the device plugin: configuration of nodes without the label."""


@dataclass(frozen=True)
class _SharingConfig:
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
            yield _SharingConfig(resource, where, str(key), mode)
        else:
            yield from _find_configs(resource, child, where)


def _sharing_configs(resources: Sequence[Resource]) -> Iterator[_SharingConfig]:
    for resource in resources:
        place = {CONFIG_MAP: "data", HELM_RELEASE: "values"}.get(resource.type)
        if place:
            yield from _find_configs(resource, resource.props.get(place), place)


def _default_keys(resources: Sequence[Resource]) -> set[Any]:
    """Return the configuration of nodes without the label; empty if the stack does not set it."""
    values = [r.props.get("values") for r in resources if r.type == HELM_RELEASE]
    found = [dig(one, *path) for one in values for path in _DEFAULTS]
    return {key for key in found if key is UNKNOWN or (isinstance(key, str) and key)}


def _uses_config(pool: NodePool, key: str, default_keys: set[Any]) -> bool:
    own = mapping(pool.labels).get(naming.DEVICE_PLUGIN_CONFIG)
    return bool(own == key) if own is not None else not default_keys or key in default_keys


def _sharers(pool: NodePool, stack: Stack) -> list[str]:
    """Return who may use the pool, by quota or by borrowing: the ClusterQueues, or the namespaces of a single one.

    The readiness check is none: its queue has no quota and borrows from every pool.
    """
    flavors = {
        name_of(flavor)
        for flavor in stack.kueue(RESOURCE_FLAVOR)
        if pool.has(mapping(dig(flavor.props, "spec", "nodeLabels")))
    }
    queues = {
        name_of(queue): stack.namespaces_of_queue(name_of(queue))
        for queue in stack.kueue(CLUSTER_QUEUE)
        if any(name in flavors for name, _ in flavor_quotas(queue))
    }
    own = {name: found for name, found in queues.items() if found != {naming.VALIDATION_NAMESPACE}}
    namespaces = [namespace for found in own.values() for namespace in found]
    return sorted(namespaces if len(own) == 1 else own)


def _check(resources: Sequence[Resource], _: Config) -> Iterable[Violation]:
    stack, default_keys = Stack(resources), _default_keys(resources)
    strict = {
        namespace: name
        for name, tier in TIERS.items()
        if not tier.shares_gpus
        for namespace in stack.namespaces_of_tier(name)
    }
    pools = {
        (pool.name, dig(pool.labels, naming.DEVICE_PLUGIN_CONFIG)): pool
        for pool in pools_and_nodes(resources)
        if pool.has_gpus
    }
    for sharing in _sharing_configs(resources):
        for pool in pools.values():
            sharers = _sharers(pool, stack)
            tiers = [strict[name] for name in sharers if name in strict]
            if not _uses_config(pool, sharing.key, default_keys) or not (sharers[1:] or tiers):
                continue
            allowed = f"a team outside tier {tiers[0]}" if len(sharers) == 1 else "one team"
            yield Violation(
                sharing.path,
                f"{sharing.mode} on pool {pool.name} of {', '.join(sharers)}",
                f"{sharing.mode} on a pool of {allowed}",
                f"label a team's own pool with {naming.DEVICE_PLUGIN_CONFIG}, or use MIG",
                sharing.resource.urn,
            )


TIME_SLICING: Final = StackRule(
    name="time-slicing-one-team",
    description="GPUs are shared by time-slicing or MPS only within one team, and not in production.",
    check=_check,
)
