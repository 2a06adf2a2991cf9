"""EFA pools: all interfaces of the instance type, and one zone shared with the file systems."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from .instance_catalog import instance_types
from .model import Config, Resource, StackRule, Violation
from .node_pools import NodePool, node_pools, zones_of
from .resource_types import FSX


def _interface_violation(pool: NodePool, name: str) -> Violation | None:
    facts = instance_types().get(name)
    if facts is not None and facts.efa_interfaces == pool.efa_interfaces:
        return None
    if facts is None:
        expected, remedy = (
            "an instance type of infra/domain/catalog.yaml",
            "refresh the catalog to add the type",
        )
    else:
        expected = f"{facts.efa_interfaces}, the EFA interfaces of {name}"
        remedy = "add one per network card; use separate pools for types that differ"
    return Violation(
        path=pool.interfaces_path,
        got=f"{pool.efa_interfaces} EFA interfaces on {name} (pool {pool.name})",
        expected=expected,
        remedy=remedy,
        urn=pool.resource.urn,
    )


def _check_interfaces(resources: Sequence[Resource], _: Config) -> Iterable[Violation]:
    for pool in node_pools(resources):
        if pool.efa_interfaces:
            found = (_interface_violation(pool, name) for name in pool.instance_types)
            yield from (violation for violation in found if violation)


def _check_zone(resources: Sequence[Resource], _: Config) -> Iterable[Violation]:
    file_systems = [resource for resource in resources if resource.type in FSX]
    served = frozenset(
        zone for files in file_systems for zone in zones_of(files, "subnetIds", resources)
    )
    for pool in node_pools(resources):
        if not pool.efa_interfaces:
            continue
        zones = ", ".join(sorted(pool.zones))
        if len(pool.zones) > 1:
            yield Violation(
                path="subnets",
                got=f"zones {zones} (pool {pool.name})",
                expected="one zone, because EFA traffic does not cross zones",
                remedy="create one pool per zone",
                urn=pool.resource.urn,
            )
        elif served and not pool.zones <= served:
            yield Violation(
                path="subnets",
                got=f"zone {zones} (pool {pool.name})",
                expected=f"{', '.join(sorted(served))}, the zone of the file systems",
                remedy="move the pool: traffic between zones is slower and billed",
                urn=pool.resource.urn,
            )


EFA_INTERFACES: Final = StackRule(
    name="efa-interfaces",
    description="Nodes of an EFA pool use all EFA interfaces of their instance type.",
    check=_check_interfaces,
)

EFA_ONE_ZONE: Final = StackRule(
    name="efa-one-zone",
    description="An EFA pool is in a single zone, that of the FSx file systems.",
    check=_check_zone,
)
