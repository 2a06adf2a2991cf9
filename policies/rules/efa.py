"""EFA pools: all interfaces of the instance type, and one zone shared with the file systems."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from .model import Config, Resource, StackRule, Violation
from .node_pools import NodePool, node_pools, zones_of
from .resource_types import LUSTRE


def _check_interfaces(pool: NodePool) -> Iterable[Violation]:
    for known in pool.known_types:
        if known.efa_cards != pool.efa_interfaces:
            yield Violation(
                pool.interfaces_path,
                f"{pool.efa_interfaces} EFA interfaces on {known.name} (pool {pool.name})",
                f"{known.efa_cards}, the EFA interfaces of {known.name}",
                "add one per network card; use separate pools for types that differ",
                pool.resource.urn,
            )


def _check_zone(pool: NodePool, served: frozenset[str]) -> Iterable[Violation]:
    zones = ", ".join(sorted(pool.zones))
    if len(pool.zones) > 1:
        yield Violation(
            "subnets",
            f"zones {zones} (pool {pool.name})",
            "one zone, because EFA traffic does not cross zones",
            "create one pool per zone",
            pool.resource.urn,
        )
    elif served and not pool.zones <= served:
        yield Violation(
            "subnets",
            f"zone {zones} (pool {pool.name})",
            f"{', '.join(sorted(served))}, the zone of the file systems",
            "move the pool: traffic between zones is slower and billed",
            pool.resource.urn,
        )


def _check(resources: Sequence[Resource], _: Config) -> Iterable[Violation]:
    file_systems = [resource for resource in resources if resource.type == LUSTRE]
    zones = [zones_of(files, "subnetIds", resources) for files in file_systems]
    for pool in node_pools(resources):
        if pool.efa_interfaces:
            yield from _check_interfaces(pool)
            yield from _check_zone(pool, frozenset().union(*zones))


EFA_PLACEMENT: Final = StackRule(
    name="efa-placement",
    description="Nodes of an EFA pool use all their EFA interfaces, in one zone, that of the FSx file systems.",
    check=_check,
)
