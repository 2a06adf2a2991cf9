"""Addresses of subnets."""

from __future__ import annotations

from ipaddress import IPv4Network
from itertools import combinations

import pytest

from infra.sites.aws import addresses

ZONES = [f"us-east-1{letter}" for letter in "abcdef"]


def test_a_16_vpc_gives_each_zone_8192_private_and_256_public_addresses() -> None:
    found = addresses.subnets("10.20.0.0/16", ZONES[:2])
    assert {zone: (one.private, one.public) for zone, one in found.items()} == {
        "us-east-1a": ("10.20.0.0/19", "10.20.192.0/24"),
        "us-east-1b": ("10.20.32.0/19", "10.20.193.0/24"),
    }


@pytest.mark.parametrize(
    "cidr", ["10.20.0.0/16", "172.16.0.0/17", "192.168.128.0/18", "100.64.0.0/19"]
)
def test_subnets_are_in_the_vpc_and_do_not_overlap(cidr: str) -> None:
    found = addresses.subnets(cidr, ZONES)
    every = [IPv4Network(c) for one in found.values() for c in (one.private, one.public)]
    assert len(every) == 12
    assert all(one.subnet_of(IPv4Network(cidr)) for one in every)
    assert not any(a.overlaps(b) for a, b in combinations(every, 2))


def test_appended_zone_leaves_other_subnets_unchanged() -> None:
    before = addresses.subnets("10.20.0.0/16", ZONES[:2])
    after = addresses.subnets("10.20.0.0/16", ZONES[:5])
    assert {zone: after[zone] for zone in before} == before


@pytest.mark.parametrize(
    ("cidr", "zones", "message"),
    [
        ("10.20.0.0/20", ZONES[:2], r"10.20.0.0/20 is a /20; a VPC here is /16 to /19"),
        ("10.0.0.0/8", ZONES[:2], r"10.0.0.0/8 is a /8; a VPC here is /16 to /19"),
        ("10.20.0.1/16", ZONES[:2], r"10.20.0.1/16 is not an IPv4 network: .*host bits set"),
        ("fd00::/16", ZONES[:2], r"fd00::/16 is not an IPv4 network"),
        ("8.8.0.0/16", ZONES[:2], r"8.8.0.0/16 is public"),
        ("172.20.128.0/18", ZONES[:2], r"172.20.128.0/18 overlaps 172.20.0.0/16"),
        ("10.20.0.0/16", ZONES[:1], r"1 zones \['us-east-1a'\]; name 2 to 6"),
        ("10.20.0.0/16", [*ZONES, "us-east-1g"], r"7 zones .*; name 2 to 6"),
        ("10.20.0.0/16", ["us-east-1a", "us-east-1a"], r"name one twice"),
    ],
)
def test_invalid_address_plan_is_rejected_in_one_line(
    cidr: str, zones: list[str], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        addresses.subnets(cidr, zones)
    assert "\n" not in str(refused.value)


def test_smallest_public_subnet_fits_a_load_balancer() -> None:
    found = addresses.subnets(f"10.20.0.0/{addresses.SMALLEST}", ZONES[:2])
    assert {IPv4Network(one.public).prefixlen for one in found.values()} == {27}
