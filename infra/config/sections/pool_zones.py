"""Zones of pools and file systems: the network has subnets there, with enough addresses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from infra.config.errors import ConfigIssue, one_of, shown
from infra.config.partial import UNKNOWN, Check, PartialStack
from infra.config.sections.network import MadeNetworkConfig, read_network, read_zones
from infra.config.sections.node_pools import read_pools
from infra.config.sections.storage import read_storage
from infra.domain.pools import NODES_MAX, Network


def check_subnet_capacity(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require addresses in each zone's subnet for all nodes of its pools.

    Without them nodes start and cost money while their pods wait for an address.
    """
    from infra.sites.aws import addresses

    network = read_network(stack)
    if not isinstance(network, MadeNetworkConfig):
        return
    try:
        planned = addresses.subnets(network.cidr, read_zones(stack))
    except ValueError:
        return
    for zone, subnet in planned.items():
        pools = [
            pool for _, pool in read_pools(stack) if pool.zone == zone and pool.max < NODES_MAX
        ]
        nodes = sum(pool.max for pool in pools)
        size = addresses.parse(subnet.private).num_addresses
        room = (size - addresses.RESERVED) // addresses.TAKEN_BY_A_NODE
        if nodes > room:
            yield ConfigIssue(
                path="network.cidr",
                code="cidr-too-small",
                problem=f"the subnet of {network.cidr} in {zone} has addresses for {room} nodes",
                valid=f"must have addresses for {nodes}, the sum of its pools' max",
                action=f"choose a larger block, or lower max of {', '.join(pool.name for pool in pools)}",
            )


def check_zones_have_subnets(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require pools and file systems in zones where the network has subnets."""
    storage = read_storage(stack)
    if not read_zones(stack) or UNKNOWN in read_zones(stack):
        return
    wanted = [
        (f"nodePools[{i}].zone", pool.zone)
        for i, pool in read_pools(stack)
        if not pool.nodes.simulated
    ]
    if storage and storage.fsx:
        wanted.append(("storage.fsx.zone", storage.fsx.zone))
    for path, zone in wanted:
        if zone not in (*read_zones(stack), UNKNOWN):
            yield ConfigIssue(
                path=path,
                code="zone-outside-network",
                problem=f"{shown(zone)} has no subnet",
                valid=f"must be one of {one_of(read_zones(stack))}",
                action="choose a zone of the network, or add it there",
            )


def check_efa_zone(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require EFA pools in one zone, that of the file system they read."""
    storage = read_storage(stack)
    if stack.provider != "eks":
        return
    known = () if UNKNOWN in read_zones(stack) else read_zones(stack)
    efa = [
        (index, pool)
        for index, pool in read_pools(stack)
        if pool.network is Network.EFA
        and pool.zone in (known or (pool.zone,))
        and pool.zone != UNKNOWN
    ]
    fsx = storage.fsx if storage else None
    anchors: Sequence[tuple[str, str]] = (
        [(fsx.zone, "storage.fsx")] if fsx else [(p.zone, f"nodePools[{i}]") for i, p in efa[:1]]
    )
    for zone, owner in anchors:
        for index, pool in efa:
            if pool.zone != zone:
                yield ConfigIssue(
                    path=f"nodePools[{index}].zone",
                    code="efa-across-zones",
                    problem=f"{shown(pool.zone)} is not the zone of {owner}",
                    valid=f"must be {zone} for a pool with network: efa",
                    action="put both in one zone: EFA does not cross zones, and reads across "
                    "zones are slow and cost money",
                )


CHECKS: Final[tuple[Check, ...]] = (
    check_subnet_capacity,
    check_zones_have_subnets,
    check_efa_zone,
)
