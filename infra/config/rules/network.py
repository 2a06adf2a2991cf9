"""The VPC of a cluster on EKS, and the zones of pools and file systems in it."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Final

from infra.config.model import StackConfig
from infra.domain.catalog import ec2
from infra.domain.pools import Network
from infra.sections.errors import ConfigIssue, issue, one_of, shown
from infra.sections.network import ExistingNetworkConfig, MadeNetworkConfig
from infra.sites.aws import addresses

_PRIVATE: Final = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")


def _network(stack: StackConfig) -> MadeNetworkConfig | ExistingNetworkConfig | None:
    return stack.network if stack.eks else None


def _zones(stack: StackConfig) -> tuple[str, ...]:
    network = _network(stack)
    return network.zone_names if network else ()


def check_zones(stack: StackConfig) -> Iterator[ConfigIssue]:
    network = _network(stack)
    if network is None:
        return
    made = isinstance(network, MadeNetworkConfig)
    seen: set[str] = set()
    for index, zone in enumerate(network.zone_names):
        path = f"network.zones[{index}]" if made else f"network.existing.privateSubnets.{zone}"
        if stack.aws and ec2.region_of_zone(zone) != stack.aws.region:
            own = stack.aws.region
            yield issue(
                "zone-outside-region",
                path,
                f"{shown(zone)} is not in {own}",
                f"must be a zone of aws.region, such as {own}a",
                "correct the zone or the region",
            )
        if zone in seen:
            yield issue(
                "duplicate",
                path,
                f"{shown(zone)} is listed twice",
                "zones must be unique",
                "remove it",
            )
        seen.add(zone)
    if not addresses.MIN_ZONES <= len(seen) <= addresses.MAX_ZONES:
        yield issue(
            "zone-count",
            f"network.{'zones' if made else 'existing.privateSubnets'}",
            f"{len(seen)} {'zone' if len(seen) == 1 else 'zones'}",
            f"must be {addresses.MIN_ZONES} to {addresses.MAX_ZONES} zones: the EKS control plane "
            "spans two",
            f"{'add a zone of the region' if len(seen) < 2 else 'remove some'}",
        )


def check_vpc_addresses(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Require private IPv4 blocks of a valid size that overlap neither Service ranges nor each other."""
    network = _network(stack)
    if network is None:
        return
    made = isinstance(network, MadeNetworkConfig)
    blocks = {"network.cidr" if made else "network.existing.cidr": network.cidr}
    for index, cidr in enumerate(network.secondary_cidrs):
        blocks[f"network.existing.secondaryCidrs[{index}]"] = cidr
    seen: list[ipaddress.IPv4Network] = []
    for path, cidr in blocks.items():
        block = ipaddress.ip_network(cidr)
        if isinstance(block, ipaddress.IPv4Network):
            yield from _check_block(path, block, seen, made=made)
            seen.append(block)
        else:
            yield issue(
                "not-ipv4",
                path,
                f"{shown(str(block))} is not an IPv4 block",
                "must be an IPv4 block such as 10.20.0.0/16",
                "choose one from 10.0.0.0/8",
            )


def _check_block(
    path: str, block: ipaddress.IPv4Network, seen: list[ipaddress.IPv4Network], *, made: bool
) -> Iterator[ConfigIssue]:
    """Yield what is wrong with a block of a VPC that has those `seen` already."""
    if made and not any(block.subnet_of(ipaddress.IPv4Network(r)) for r in _PRIVATE):
        yield issue(
            "public-cidr",
            path,
            f"{block} is public",
            f"must be part of {', '.join(_PRIVATE)}",
            "choose one that no connected network uses",
        )
    if made and not addresses.LARGEST <= block.prefixlen <= addresses.SMALLEST:
        small = block.prefixlen > addresses.SMALLEST
        yield issue(
            "cidr-size",
            path,
            f"{block} is a /{block.prefixlen}",
            f"must be /{addresses.LARGEST} to /{addresses.SMALLEST}",
            f"choose a {'larger' if small else 'smaller'} block",
        )
    if block.overlaps(addresses.SERVICES):
        yield issue(
            "cidr-overlap",
            path,
            f"{block} overlaps {addresses.SERVICES}",
            f"must not overlap {addresses.SERVICES}, the range of Kubernetes Services",
            "choose one from 10.0.0.0/8",
        )
    if other := next((one for one in seen if block.overlaps(one)), None):
        yield issue(
            "cidr-overlap",
            path,
            f"{block} overlaps {other}",
            "blocks of a VPC must not overlap",
            "list the VPC's blocks, each once",
        )


def check_existing_subnets(stack: StackConfig) -> Iterator[ConfigIssue]:
    network = _network(stack)
    if not isinstance(network, ExistingNetworkConfig):
        return
    seen: dict[str, str] = {}
    for zone, subnet in network.existing.private_subnets.items():
        if subnet in seen:
            yield issue(
                "duplicate",
                f"network.existing.privateSubnets.{zone}",
                f"{subnet} is already used by {seen[subnet]}",
                "each zone requires its own subnet",
                "name a subnet of that zone",
            )
        seen.setdefault(subnet, zone)


def check_subnet_capacity(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Require addresses for all nodes of a zone's pools: nodes cost money while their pods wait for one."""
    network = _network(stack)
    if not isinstance(network, MadeNetworkConfig):
        return
    try:
        planned = addresses.subnets(network.cidr, network.zones)
    except ValueError:
        return
    for zone, subnet in planned.items():
        pools = [pool for pool in stack.node_pools if pool.zone == zone]
        nodes = sum(pool.max for pool in pools)
        size = addresses.parse(subnet.private).num_addresses
        room = (size - addresses.RESERVED) // addresses.TAKEN_BY_A_NODE
        if nodes > room:
            yield issue(
                "cidr-too-small",
                "network.cidr",
                f"the subnet of {network.cidr} in {zone} has addresses for {room} nodes",
                f"must have addresses for {nodes}, the sum of its pools' max",
                f"choose a larger block, or lower max of {', '.join(pool.name for pool in pools)}",
            )


def check_zones_have_subnets(stack: StackConfig) -> Iterator[ConfigIssue]:
    pools = enumerate(stack.node_pools)
    wanted = [(f"nodePools[{i}].zone", p.zone) for i, p in pools if not p.nodes.simulated]
    if stack.storage.fsx:
        wanted.append(("storage.fsx.zone", stack.storage.fsx.zone))
    zones = _zones(stack)
    for path, zone in wanted if zones else ():
        if zone not in zones:
            yield issue(
                "zone-outside-network",
                path,
                f"{shown(zone)} has no subnet",
                f"must be one of {one_of(zones)}",
                "choose a zone of the network, or add it there",
            )


def check_efa_zone(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Require EFA pools in one zone, that of the file system they read."""
    zones, fsx = _zones(stack), stack.storage.fsx
    efa = [
        (index, pool)
        for index, pool in enumerate(stack.node_pools)
        if pool.network is Network.EFA and pool.zone in (zones or (pool.zone,))
    ]
    if stack.eks is None or not efa:
        return
    zone, owner = (fsx.zone, "storage.fsx") if fsx else (efa[0][1].zone, f"nodePools[{efa[0][0]}]")
    for index, pool in efa:
        if pool.zone != zone:
            yield issue(
                "efa-across-zones",
                f"nodePools[{index}].zone",
                f"{shown(pool.zone)} is not the zone of {owner}",
                f"must be {zone} for a pool with network: efa",
                "put both in one zone: EFA does not cross zones, and reads across zones are slow "
                "and cost money",
            )
