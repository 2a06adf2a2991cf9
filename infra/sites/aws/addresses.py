"""Which addresses a VPC's subnets get. Pure arithmetic.

The VPC is cut into eighths. Six are for one private subnet each, by the zone's place in the list; the
seventh holds the public subnets, each 1/256 of the VPC; the last stays free. A zone that is appended takes
the next place, so no subnet that exists ever moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from itertools import islice
from typing import Final

MAX_ZONES: Final = 6
"""As many as any region has (us-east-1)."""
MIN_ZONES: Final = 2
"""EKS wants its control plane in two zones."""
LARGEST: Final = 16
"""Prefix length of the largest VPC that AWS makes."""
SMALLEST: Final = 19
"""Prefix length of the smallest VPC here: a load balancer wants /27, a public subnet's size in it."""
SERVICES: Final = IPv4Network("172.20.0.0/16")
"""Addresses of Kubernetes Services in every cluster; nothing that pods talk to may have them."""

HELD_BY_A_NODE: Final = 16
"""Addresses that a node takes for its pods when it starts: the add-ons' on a GPU node, and a run's."""
HELD_IN_RESERVE: Final = 4
"""What it keeps free beyond those in use."""
TAKEN_BY_A_NODE: Final = 1 + HELD_BY_A_NODE + HELD_IN_RESERVE
"""Its own, too: enough to plan a subnet by."""
RESERVED: Final = 64
"""Of a subnet, for all but its pools' nodes: AWS itself, system nodes, control plane, endpoints, files."""

_PRIVATE_BITS: Final = 3
_PUBLIC_BITS: Final = 8
_PUBLIC_EIGHTH: Final = 6


@dataclass(frozen=True, kw_only=True)
class ZoneAddresses:
    """CIDRs of one zone's subnets."""

    private: str
    public: str


def subnets(cidr: str, zones: Sequence[str]) -> Mapping[str, ZoneAddresses]:
    """The subnets of each zone, in the zones' order.

    Raises ValueError, in one line, for addresses or zones that cannot be had.
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
    """A VPC's addresses, of any size.

    Raises ValueError, in one line, for what is no network, is public or collides with Services.
    """
    found = parse(cidr)
    if not found.is_private and not found.subnet_of(IPv4Network("100.64.0.0/10")):
        raise ValueError(
            f"{cidr} is public; take it from 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16"
        )
    if found.overlaps(SERVICES):
        raise ValueError(
            f"{cidr} overlaps {SERVICES}, which Kubernetes Services have; take another"
        )
    return found


def parse(cidr: str) -> IPv4Network:
    """A network. Raises ValueError, in one line, for what is none."""
    try:
        return IPv4Network(cidr)
    except ValueError as error:
        raise ValueError(
            f"{cidr} is no IPv4 network: {error}; write it like 10.20.0.0/16"
        ) from None
