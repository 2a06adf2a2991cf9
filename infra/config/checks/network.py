"""Regions, zones and addresses. Everything here is for a cluster that the stack makes on AWS."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from typing import Any, Final

from infra.config.aws_model import MadeNetworkConfig
from infra.config.checks.parts import UNKNOWN, Parts
from infra.config.mistakes import Mistake, did_you_mean, one_of, shown
from infra.domain import regions
from infra.domain.pools import Network

_METADATA: Final = tuple(map(ipaddress.ip_network, ("169.254.0.0/16", "fd00:ec2::/32")))
_PRIVATE: Final = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")


def region(parts: Parts) -> Iterator[Mistake]:
    """The region exists."""
    if parts.aws and parts.aws.region not in (*regions.KNOWN, UNKNOWN):
        name = parts.aws.region
        yield Mistake(
            path="aws.region",
            got=shown(name),
            allowed="a region of AWS that has EKS, such as us-east-1",
            remedy=did_you_mean(name, regions.KNOWN, "correct it"),
        )


def _zone_paths(parts: Parts) -> list[tuple[str, str]]:
    """Every zone of the network with its place in the file."""
    if isinstance(parts.network, MadeNetworkConfig):
        return [(f"network.zones[{i}]", zone) for i, zone in enumerate(parts.zones)]
    return [(f"network.existing.privateSubnets.{zone}", zone) for zone in parts.zones]


def zones(parts: Parts) -> Iterator[Mistake]:
    """Zones are of the region, each named once, and enough for a control plane."""
    from infra.sites.aws import addresses

    if not parts.network or UNKNOWN in parts.zones:
        return
    own = parts.aws.region if parts.aws and parts.aws.region in regions.KNOWN else None
    seen: set[str] = set()
    for path, zone in _zone_paths(parts):
        if own and regions.of_zone(zone) != own:
            yield Mistake(
                path=path,
                got=shown(zone),
                allowed=f"zones of {own}, which aws.region names, such as {own}a",
                remedy="correct one of them",
            )
        if zone in seen:
            yield Mistake(path=path, got=shown(zone), allowed="each zone once", remedy="remove it")
        seen.add(zone)
    if not addresses.MIN_ZONES <= len(seen) <= addresses.MAX_ZONES:
        made = isinstance(parts.network, MadeNetworkConfig)
        yield Mistake(
            path="network.zones" if made else "network.existing.privateSubnets",
            got=f"{len(seen)} {'zone' if len(seen) == 1 else 'zones'}",
            allowed=f"{addresses.MIN_ZONES} to {addresses.MAX_ZONES}, for the control plane of "
            "EKS is in two",
            remedy="add a zone of the region" if len(seen) < 2 else "remove some",
        )


def addresses_of_vpc(parts: Parts) -> Iterator[Mistake]:
    """The VPC's addresses are private, of a size that can be cut up, and nobody else's."""
    from infra.sites.aws import addresses

    if not parts.network or parts.network.cidr == UNKNOWN:
        return
    made = isinstance(parts.network, MadeNetworkConfig)
    path = "network.cidr" if made else "network.existing.cidr"
    block = ipaddress.ip_network(parts.network.cidr)
    if not isinstance(block, ipaddress.IPv4Network):
        yield Mistake(
            path=path,
            got=shown(str(block)),
            allowed="an IPv4 block such as 10.20.0.0/16",
            remedy="take one from 10.0.0.0/8",
        )
        return
    if made and not any(block.subnet_of(ipaddress.IPv4Network(r)) for r in _PRIVATE):
        yield Mistake(
            path=path,
            got=f"{block}, which is public",
            allowed=f"a part of {', '.join(_PRIVATE)}",
            remedy="take one that no network you connect to has",
        )
    if made and not addresses.LARGEST <= block.prefixlen <= addresses.SMALLEST:
        small = block.prefixlen > addresses.SMALLEST
        yield Mistake(
            path=path,
            got=f"{block}, a /{block.prefixlen}",
            allowed=f"/{addresses.LARGEST} to /{addresses.SMALLEST}",
            remedy=f"take a {'larger' if small else 'smaller'} block",
        )
    if block.overlaps(addresses.SERVICES):
        yield Mistake(
            path=path,
            got=f"{block}, which overlaps {addresses.SERVICES}",
            allowed=f"any block but {addresses.SERVICES}, which Kubernetes Services have",
            remedy="take one from 10.0.0.0/8",
        )


def room_for_nodes(parts: Parts) -> Iterator[Mistake]:
    """The subnet of each zone has addresses for all nodes that its pools may have.

    Without them nodes come, cost, and run nothing: their pods wait for an address.
    """
    from infra.sites.aws import addresses

    if not isinstance(parts.network, MadeNetworkConfig):
        return
    try:
        planned = addresses.subnets(parts.network.cidr, parts.zones)
    except ValueError:
        return
    for zone, subnet in planned.items():
        pools = [pool for _, pool in parts.pools if pool.zone == zone]
        nodes = sum(pool.max for pool in pools)
        size = addresses.parse(subnet.private).num_addresses
        room = (size - addresses.RESERVED) // addresses.TAKEN_BY_A_NODE
        if nodes > room:
            yield Mistake(
                path="network.cidr",
                got=f"{parts.network.cidr}, whose subnet in {zone} has addresses for {room} nodes",
                allowed=f"one with room for {nodes}, the maxima of its pools together",
                remedy="take a larger block, or lower max of "
                f"{', '.join(pool.name for pool in pools)}",
            )


def subnets(parts: Parts) -> Iterator[Mistake]:
    """Each zone of a network that is brought has a subnet of its own."""
    if not parts.network or isinstance(parts.network, MadeNetworkConfig):
        return
    seen: dict[str, str] = {}
    for zone, subnet in parts.network.existing.private_subnets.items():
        if subnet in seen:
            yield Mistake(
                path=f"network.existing.privateSubnets.{zone}",
                got=f"{subnet}, which {seen[subnet]} has, too",
                allowed="a subnet of its own for each zone",
                remedy="name a subnet of that zone",
            )
        seen.setdefault(subnet, zone)


def egress(parts: Parts) -> Iterator[Mistake]:
    """Nothing in the file opens the metadata service, whose answer is the node's own credentials."""
    blocks: Any = parts.raw.get("egressCidrs")
    for index, text in enumerate(blocks if isinstance(blocks, list) else ()):
        try:
            block = ipaddress.ip_network(text)
        except ValueError:
            continue
        for held in _METADATA:
            if held.version == block.version and held.supernet_of(block):  # type: ignore[arg-type]
                yield Mistake(
                    path=f"egressCidrs[{index}]",
                    got=shown(text),
                    allowed=f"no part of {held}, where the metadata service hands out the node's role",
                    remedy="remove it; pods get a role of their own by EKS Pod Identity",
                )


def places(parts: Parts) -> Iterator[Mistake]:
    """Pools and file systems are in zones where the network has subnets."""
    if not parts.zones or UNKNOWN in parts.zones:
        return
    wanted = [
        (f"nodePools[{i}].zone", pool.zone) for i, pool in parts.pools if not pool.nodes.simulated
    ]
    if parts.storage and parts.storage.fsx:
        wanted.append(("storage.fsx.zone", parts.storage.fsx.zone))
    for path, zone in wanted:
        if zone not in (*parts.zones, UNKNOWN):
            yield Mistake(
                path=path,
                got=shown(zone),
                allowed=one_of(parts.zones),
                remedy="choose a zone of the network, or add it there",
            )


def one_zone_for_efa(parts: Parts) -> Iterator[Mistake]:
    """EFA pools are in one zone, that of the file system that feeds them."""
    if parts.provider != "eks":
        return
    efa = [
        (index, pool)
        for index, pool in parts.pools
        if pool.network is Network.EFA and pool.zone != UNKNOWN
    ]
    fsx = parts.storage.fsx if parts.storage else None
    anchors: Sequence[tuple[str, str]] = (
        [(fsx.zone, "storage.fsx")] if fsx else [(p.zone, f"nodePools[{i}]") for i, p in efa[:1]]
    )
    for zone, owner in anchors:
        for index, pool in efa:
            if pool.zone != zone:
                yield Mistake(
                    path=f"nodePools[{index}].zone",
                    got=shown(pool.zone),
                    allowed=f"{zone}, the zone of {owner}, for a pool of network efa",
                    remedy="put both in one zone: EFA does not leave it, and reads between zones "
                    "are slow and cost money",
                )
