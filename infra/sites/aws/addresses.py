"""Subnet arithmetic of a VPC.

The VPC is cut into eighths. Six hold one private subnet each, by the zone's position in the list; the
seventh holds the public subnets, each 1/256 of the VPC; the last stays free. Appending a zone uses the next
position, so existing subnets never move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from itertools import islice
from typing import Final

MAX_ZONES: Final = 6
"""The most zones of any region (us-east-1)."""
MIN_ZONES: Final = 2
"""EKS requires two zones for its control plane."""
LARGEST: Final = 16
"""Prefix length of the largest VPC that AWS allows."""
SMALLEST: Final = 19
"""Prefix length of the smallest VPC: its public subnets are /27, which load balancers require."""
SERVICES: Final = IPv4Network("172.20.0.0/16")
"""Addresses of Kubernetes Services in every cluster; no network that pods reach may overlap."""

HELD_BY_A_NODE: Final = 16
"""Addresses that a node reserves for pods at startup: add-ons on a GPU node, and a run."""
HELD_IN_RESERVE: Final = 4
"""Free addresses that a node keeps beyond those in use."""
TAKEN_BY_A_NODE: Final = 1 + HELD_BY_A_NODE + HELD_IN_RESERVE
"""Addresses to plan per node, its own included."""
RESERVED: Final = 64
"""Addresses of a subnet reserved for AWS, system nodes, control plane, endpoints and file systems."""

_PRIVATE_BITS: Final = 3
_PUBLIC_BITS: Final = 8
_PUBLIC_EIGHTH: Final = 6


@dataclass(frozen=True, kw_only=True)
class ZoneAddresses:
    private: str
    public: str


def subnets(cidr: str, zones: Sequence[str]) -> Mapping[str, ZoneAddresses]:
    """Return the subnets of each zone, in the zones' order.

    Raises ValueError for an invalid VPC size or list of zones.
    """
    vpc = network(cidr)
    if not LARGEST <= vpc.prefixlen <= SMALLEST:
        raise ValueError(
            f"{cidr} is a /{vpc.prefixlen}; a VPC here is /{LARGEST} to /{SMALLEST}, "
            f"such as {vpc.network_address}/{LARGEST}"
        )
    if not MIN_ZONES <= len(zones) <= MAX_ZONES:
        raise ValueError(
            f"{len(zones)} zones {list(zones)}; name {MIN_ZONES} to {MAX_ZONES} of the region"
        )
    if len(set(zones)) < len(zones):
        raise ValueError(f"zones {list(zones)} name one twice; name each once")
    eighths = list(vpc.subnets(prefixlen_diff=_PRIVATE_BITS))
    small = eighths[_PUBLIC_EIGHTH].subnets(prefixlen_diff=_PUBLIC_BITS - _PRIVATE_BITS)
    public = list(islice(small, MAX_ZONES))
    return {
        zone: ZoneAddresses(private=str(eighths[place]), public=str(public[place]))
        for place, zone in enumerate(zones)
    }


def network(cidr: str) -> IPv4Network:
    """Parse a VPC's CIDR of any size.

    Raises ValueError if it is not a network, is public or overlaps the addresses of Services.
    """
    found = parse(cidr)
    if not found.is_private and not found.subnet_of(IPv4Network("100.64.0.0/10")):
        raise ValueError(
            f"{cidr} is public; choose one from 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16"
        )
    if found.overlaps(SERVICES):
        raise ValueError(
            f"{cidr} overlaps {SERVICES}, the addresses of Kubernetes Services; choose another"
        )
    return found


def parse(cidr: str) -> IPv4Network:
    """Parse a network. Raises ValueError if it is not one."""
    try:
        return IPv4Network(cidr)
    except ValueError as error:
        raise ValueError(
            f"{cidr} is not an IPv4 network: {error}; write it like 10.20.0.0/16"
        ) from None
