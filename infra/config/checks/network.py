"""Regions, zones and addresses. Everything here is for a cluster that the stack makes on AWS."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from typing import Any, Final

from infra.config.aws_model import MadeNetworkConfig
from infra.config.checks.partial import UNKNOWN, PartialStack
from infra.config.errors import ConfigIssue, did_you_mean, one_of, shown
from infra.domain.catalog import ec2
from infra.domain.pools import NODES_MAX, Network

_METADATA: Final = tuple(map(ipaddress.ip_network, ("169.254.0.0/16", "fd00:ec2::/32")))
_PRIVATE: Final = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")


def check_region(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require a known AWS region."""
    if parts.aws and parts.aws.region not in (*ec2.REGIONS, UNKNOWN):
        name = parts.aws.region
        yield ConfigIssue(
            path="aws.region",
            code="unknown-name",
            problem=f"unknown region {shown(name)}",
            valid="must be an AWS region with EKS, such as us-east-1",
            action=did_you_mean(name, ec2.REGIONS, "correct it"),
        )


def _zone_paths(parts: PartialStack) -> list[tuple[str, str]]:
    """Every zone of the network with its place in the file."""
    if isinstance(parts.network, MadeNetworkConfig):
        return [(f"network.zones[{i}]", zone) for i, zone in enumerate(parts.zones)]
    return [(f"network.existing.privateSubnets.{zone}", zone) for zone in parts.zones]


def check_zones(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require unique zones of the region, as many as a control plane needs."""
    from infra.sites.aws import addresses

    if not parts.network or UNKNOWN in parts.zones:
        return
    own = parts.aws.region if parts.aws and parts.aws.region in ec2.REGIONS else None
    seen: set[str] = set()
    for path, zone in _zone_paths(parts):
        if own and ec2.region_of_zone(zone) != own:
            yield ConfigIssue(
                path=path,
                code="zone-outside-region",
                problem=f"{shown(zone)} is not in {own}",
                valid=f"must be a zone of aws.region, such as {own}a",
                action="correct the zone or the region",
            )
        if zone in seen:
            yield ConfigIssue(
                path=path,
                code="duplicate",
                problem=f"{shown(zone)} is listed twice",
                valid="zones must be unique",
                action="remove it",
            )
        seen.add(zone)
    if not addresses.MIN_ZONES <= len(seen) <= addresses.MAX_ZONES:
        made = isinstance(parts.network, MadeNetworkConfig)
        yield ConfigIssue(
            path="network.zones" if made else "network.existing.privateSubnets",
            code="zone-count",
            problem=f"{len(seen)} {'zone' if len(seen) == 1 else 'zones'}",
            valid=f"must be {addresses.MIN_ZONES} to {addresses.MAX_ZONES} zones: the "
            "EKS control plane spans two",
            action="add a zone of the region" if len(seen) < 2 else "remove some",
        )


def check_vpc_addresses(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require a private IPv4 block of a valid size that no Service range overlaps."""
    from infra.sites.aws import addresses

    if not parts.network or parts.network.cidr == UNKNOWN:
        return
    made = isinstance(parts.network, MadeNetworkConfig)
    path = "network.cidr" if made else "network.existing.cidr"
    block = ipaddress.ip_network(parts.network.cidr)
    if not isinstance(block, ipaddress.IPv4Network):
        yield ConfigIssue(
            path=path,
            code="not-ipv4",
            problem=f"{shown(str(block))} is not an IPv4 block",
            valid="must be an IPv4 block such as 10.20.0.0/16",
            action="choose one from 10.0.0.0/8",
        )
        return
    if made and not any(block.subnet_of(ipaddress.IPv4Network(r)) for r in _PRIVATE):
        yield ConfigIssue(
            path=path,
            code="public-cidr",
            problem=f"{block} is public",
            valid=f"must be part of {', '.join(_PRIVATE)}",
            action="choose one that no connected network uses",
        )
    if made and not addresses.LARGEST <= block.prefixlen <= addresses.SMALLEST:
        small = block.prefixlen > addresses.SMALLEST
        yield ConfigIssue(
            path=path,
            code="cidr-size",
            problem=f"{block} is a /{block.prefixlen}",
            valid=f"must be /{addresses.LARGEST} to /{addresses.SMALLEST}",
            action=f"choose a {'larger' if small else 'smaller'} block",
        )
    if block.overlaps(addresses.SERVICES):
        yield ConfigIssue(
            path=path,
            code="cidr-overlap",
            problem=f"{block} overlaps {addresses.SERVICES}",
            valid=f"must not overlap {addresses.SERVICES}, the range of Kubernetes Services",
            action="choose one from 10.0.0.0/8",
        )


def check_subnet_capacity(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require addresses in each zone's subnet for all nodes of its pools.

    Without them nodes start and cost money while their pods wait for an address.
    """
    from infra.sites.aws import addresses

    if not isinstance(parts.network, MadeNetworkConfig):
        return
    try:
        planned = addresses.subnets(parts.network.cidr, parts.zones)
    except ValueError:
        return
    for zone, subnet in planned.items():
        pools = [pool for _, pool in parts.pools if pool.zone == zone and pool.max < NODES_MAX]
        nodes = sum(pool.max for pool in pools)
        size = addresses.parse(subnet.private).num_addresses
        room = (size - addresses.RESERVED) // addresses.TAKEN_BY_A_NODE
        if nodes > room:
            yield ConfigIssue(
                path="network.cidr",
                code="cidr-too-small",
                problem=f"the subnet of {parts.network.cidr} in {zone} has addresses for "
                f"{room} nodes",
                valid=f"must have addresses for {nodes}, the sum of its pools' max",
                action=f"choose a larger block, or lower max of {', '.join(pool.name for pool in pools)}",
            )


def check_existing_subnets(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require one subnet per zone of an existing network."""
    if not parts.network or isinstance(parts.network, MadeNetworkConfig):
        return
    seen: dict[str, str] = {}
    for zone, subnet in parts.network.existing.private_subnets.items():
        if subnet in seen:
            yield ConfigIssue(
                path=f"network.existing.privateSubnets.{zone}",
                code="duplicate",
                problem=f"{subnet} is already used by {seen[subnet]}",
                valid="each zone requires its own subnet",
                action="name a subnet of that zone",
            )
        seen.setdefault(subnet, zone)


def check_egress(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Reject egress to the metadata service, which returns the node's credentials."""
    blocks: Any = parts.raw.get("egressCidrs")
    for index, text in enumerate(blocks if isinstance(blocks, list) else ()):
        try:
            block = ipaddress.ip_network(text)
        except ValueError:
            continue
        for held in _METADATA:
            if held.version == block.version and held.supernet_of(block):  # type: ignore[arg-type]
                yield ConfigIssue(
                    path=f"egressCidrs[{index}]",
                    code="egress-to-metadata",
                    problem=f"{shown(text)} is in {held}, the range of the metadata service",
                    valid="must not expose the node's credentials",
                    action="remove it; pods get their own role by EKS Pod Identity",
                )


def check_zones_have_subnets(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require pools and file systems in zones where the network has subnets."""
    if not parts.zones or UNKNOWN in parts.zones:
        return
    wanted = [
        (f"nodePools[{i}].zone", pool.zone) for i, pool in parts.pools if not pool.nodes.simulated
    ]
    if parts.storage and parts.storage.fsx:
        wanted.append(("storage.fsx.zone", parts.storage.fsx.zone))
    for path, zone in wanted:
        if zone not in (*parts.zones, UNKNOWN):
            yield ConfigIssue(
                path=path,
                code="zone-outside-network",
                problem=f"{shown(zone)} has no subnet",
                valid=f"must be one of {one_of(parts.zones)}",
                action="choose a zone of the network, or add it there",
            )


def check_efa_zone(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require EFA pools in one zone, that of the file system they read."""
    if parts.provider != "eks":
        return
    known = () if UNKNOWN in parts.zones else parts.zones
    efa = [
        (index, pool)
        for index, pool in parts.pools
        if pool.network is Network.EFA
        and pool.zone in (known or (pool.zone,))
        and pool.zone != UNKNOWN
    ]
    fsx = parts.storage.fsx if parts.storage else None
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
