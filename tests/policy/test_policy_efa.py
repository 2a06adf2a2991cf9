"""The rules about EFA, its zone, and the price of pools at their largest."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from infra.domain import catalog
from policies.rules.budget import HOURLY_BUDGET
from policies.rules.efa import EFA_INTERFACES, EFA_ONE_ZONE
from policies.rules.instance_catalog import instance_types
from policies.rules.model import UNKNOWN, Resource
from tests.policy.policy_examples import stack_violations
from tests.policy.policy_pools import karpenter_pool, node_class, node_group, subnet, template
from tests.unit.snapshots import Text

A, B = "us-east-1a", "us-east-1b"


def test_efa_facts_equal_those_of_the_program() -> None:
    types = catalog.load().types
    assert set(instance_types()) == set(types)
    for name, facts in instance_types().items():
        assert facts.efa_interfaces == types[name].efa_cards
        assert facts.gpus == types[name].gpus
        for region, price in types[name].prices.items():
            assert facts.on_demand[region] == price.on_demand_usd_hour
            assert facts.spot[region] == price.spot_usd_hour


@pytest.mark.parametrize(
    "resources",
    [
        [node_group("a", "p4d.24xlarge"), template("a", efa=4)],
        [node_group("a", "p4d.24xlarge", "p4de.24xlarge"), template("a", efa=4)],
        [node_group("a"), template("a", efa=32, instance_type="p5.48xlarge")],
        [node_group("a", "p4d.24xlarge"), template("a", efa=0)],
        [node_group("a"), template("a", efa=32, instance_type=UNKNOWN)],
        [karpenter_pool("a", "p4d.24xlarge"), node_class("a", efa=4)],
        [karpenter_pool("a", "p4d.24xlarge"), node_class("other", efa=1)],
    ],
)
def test_nodes_with_every_efa_interface_or_none_pass(resources: list[Resource]) -> None:
    assert stack_violations(EFA_INTERFACES, resources) == []


@pytest.mark.parametrize(
    ("resources", "got"),
    [
        (
            [node_group("a", "p4d.24xlarge"), template("a", efa=3)],
            ["3 EFA interfaces on p4d.24xlarge (pool a)"],
        ),
        (
            [node_group("a", "p4d.24xlarge", "p5.48xlarge"), template("a", efa=4)],
            ["4 EFA interfaces on p5.48xlarge (pool a)"],
        ),
        (
            [node_group("a"), template("a", efa=31, instance_type="p5.48xlarge")],
            ["31 EFA interfaces on p5.48xlarge (pool a)"],
        ),
        (
            [karpenter_pool("a", "p4d.24xlarge"), node_class("a", efa=8)],
            ["8 EFA interfaces on p4d.24xlarge (pool a)"],
        ),
        (
            [karpenter_pool("a", "p99.huge"), node_class("a", efa=8)],
            ["8 EFA interfaces on p99.huge (pool a)"],
        ),
    ],
)
def test_a_wrong_number_of_efa_interfaces_is_rejected(
    resources: list[Resource], got: list[str]
) -> None:
    assert [v.got for v in stack_violations(EFA_INTERFACES, resources)] == got


def test_the_message_names_pool_type_and_number(text: Text) -> None:
    resources = [node_group("a", "p4d.24xlarge"), template("a", efa=3)]
    (found,) = stack_violations(EFA_INTERFACES, resources)
    assert found.urn == "urn:a"
    text(str(found))


def lustre(zone: str) -> Resource:
    return Resource(
        type="aws:fsx/lustreFileSystem:LustreFileSystem",
        props={"subnetIds": UNKNOWN},
        urn="urn:files",
        references={"subnetIds": frozenset({f"urn:subnet-{zone}"})},
    )


def group_in(*zones: str, efa: int = 4) -> list[Resource]:
    group = node_group("a", "p4d.24xlarge", zones=zones)
    return [subnet(A), subnet(B), group, template("a", efa=efa)]


def karpenter_in(*zones: str, by_class: bool = False) -> list[Resource]:
    pool = karpenter_pool("a", "p4d.24xlarge", zones=() if by_class else zones)
    return [subnet(A), subnet(B), pool, node_class("a", efa=4, zones=zones)]


@pytest.mark.parametrize(
    "resources",
    [
        [*group_in(A), lustre(A)],
        group_in(A),
        [*group_in(A, B, efa=0), lustre(A)],
        [*group_in(), lustre(A)],
        [*karpenter_in(A), lustre(A)],
        [*karpenter_in(A, by_class=True), lustre(A)],
    ],
)
def test_efa_in_the_zone_of_its_file_system_passes(resources: list[Resource]) -> None:
    assert stack_violations(EFA_ONE_ZONE, resources) == []


@pytest.mark.parametrize(
    ("resources", "got"),
    [
        ([*group_in(B), lustre(A)], f"zone {B} (pool a)"),
        (group_in(A, B), f"zones {A}, {B} (pool a)"),
        ([*karpenter_in(B), lustre(A)], f"zone {B} (pool a)"),
        (karpenter_in(A, B, by_class=True), f"zones {A}, {B} (pool a)"),
    ],
)
def test_efa_in_another_zone_or_across_zones_is_rejected(
    resources: list[Resource], got: str
) -> None:
    assert [(v.got, v.urn) for v in stack_violations(EFA_ONE_ZONE, resources)] == [(got, "urn:a")]


def test_required_zones_narrow_those_of_a_node_class() -> None:
    pool = karpenter_pool("a", "p4d.24xlarge", zones=(A,))
    around = [subnet(A), subnet(B), lustre(A)]
    assert (
        stack_violations(EFA_ONE_ZONE, [*around, pool, node_class("a", efa=4, zones=(A, B))]) == []
    )
    avoids = copy.deepcopy(karpenter_pool("a", "p4d.24xlarge", zones=(B,)))
    avoids.props["spec"]["template"]["spec"]["requirements"][-1]["operator"] = "NotIn"
    assert (
        stack_violations(EFA_ONE_ZONE, [*around, avoids, node_class("a", efa=4, zones=(A,))]) == []
    )


def test_the_message_names_both_zones(text: Text) -> None:
    (found,) = stack_violations(EFA_ONE_ZONE, [*group_in(B), lustre(A)])
    text(str(found))


def sized(most: Any, *types: str, capacity: str = "ON_DEMAND", name: str = "a") -> Resource:
    return node_group(name, *types, scalingConfig={"maxSize": most}, capacityType=capacity)


def usd(name: str, *, spot: bool = False) -> float:
    facts = instance_types()[name]
    price = (facts.spot if spot else facts.on_demand)["us-east-1"]
    assert price
    return price


DEAR, CHEAP = "p4d.24xlarge", "m6i.xlarge"


@pytest.mark.parametrize(
    ("pools", "cost"),
    [
        ([sized(4, DEAR)], 4 * usd(DEAR)),
        ([sized(4, CHEAP, DEAR)], 4 * usd(DEAR)),
        ([sized(4, DEAR, capacity="SPOT")], 4 * usd(DEAR, spot=True)),
        ([sized(4, DEAR), sized(2, CHEAP, name="b")], 4 * usd(DEAR) + 2 * usd(CHEAP)),
        # One pool in two zones: two groups that bear its name.
        ([sized(4, DEAR), sized(2, DEAR)], 6 * usd(DEAR)),
        ([karpenter_pool("a", DEAR, limits={"nodes": "8"})], 8 * usd(DEAR)),
        ([karpenter_pool("a", CHEAP, limits={"nodes": "1k"})], 1000 * usd(CHEAP)),
        (
            [karpenter_pool("a", DEAR, capacity=("spot", "on-demand"), limits={"nodes": "8"})],
            8 * usd(DEAR),
        ),
        (
            [karpenter_pool("a", DEAR, capacity=("spot",), limits={"nodes": "8"})],
            8 * usd(DEAR, spot=True),
        ),
    ],
)
def test_the_maximum_cost_of_pools_must_fit_the_limit(
    pools: list[Resource],
    cost: float,
) -> None:
    assert stack_violations(HOURLY_BUDGET, pools, limitUsdPerHour=cost + 0.01) == []
    (found,) = stack_violations(HOURLY_BUDGET, pools, limitUsdPerHour=cost - 0.01)
    assert found.got.startswith(f"{cost:.2f} USD per hour")
    assert found.expected == f"at most {cost - 0.01:.2f}"


def test_without_a_limit_every_cost_passes() -> None:
    unlimited = karpenter_pool("a", "p99.huge")
    assert stack_violations(HOURLY_BUDGET, [sized(10_000, DEAR), unlimited]) == []


@pytest.mark.parametrize(
    ("pool", "where"),
    [
        (karpenter_pool("a", DEAR), "spec.limits.nodes"),
        (sized(1, "p99.huge"), "instance types"),
        (sized(1, "p99.huge", capacity="SPOT"), "instance types"),
        (sized(1, DEAR, "p99.huge"), "instance types"),
        (sized(1), "instance types"),
    ],
)
def test_a_pool_of_unknown_cost_is_rejected_under_a_limit(pool: Resource, where: str) -> None:
    (found,) = stack_violations(HOURLY_BUDGET, [pool], limitUsdPerHour=1e9)
    assert (found.path, found.urn) == (where, "urn:a")


def test_a_cost_equal_to_the_limit_passes() -> None:
    assert stack_violations(HOURLY_BUDGET, [sized(4, DEAR)], limitUsdPerHour=4 * usd(DEAR)) == []


@pytest.mark.parametrize(
    ("types", "named"), [((), "none"), (("p98.huge", "p99.huge"), "p98.huge, p99.huge")]
)
def test_types_without_a_price_are_named(types: tuple[str, ...], named: str, text: Text) -> None:
    (found,) = stack_violations(HOURLY_BUDGET, [sized(1, *types)], limitUsdPerHour=1e9)
    assert found.got.startswith(named)
    text(str(found))


def test_an_unknown_region_uses_the_first_regions_prices() -> None:
    later = Resource(type="pulumi:providers:aws", props={"region": UNKNOWN})
    (found,) = stack_violations(HOURLY_BUDGET, [later, sized(1, DEAR)], limitUsdPerHour=1)
    assert found.got.startswith(f"{usd(DEAR):.2f} USD")


def test_prices_are_those_of_the_providers_region() -> None:
    there = Resource(type="pulumi:providers:aws", props={"region": "eu-west-1"})
    elsewhere = Resource(type="aws:s3/bucket:Bucket", props={"region": "us-west-2"})
    price = instance_types()[DEAR].on_demand["eu-west-1"]
    assert price and price != usd(DEAR)
    (found,) = stack_violations(
        HOURLY_BUDGET, [elsewhere, there, sized(1, DEAR)], limitUsdPerHour=1
    )
    assert found.got.startswith(f"{price:.2f} USD per hour")
    assert found.got.endswith(f": a 1 x {price:.2f}") and found.expected == "at most 1.00"


def test_an_unknown_size_is_checked_on_update() -> None:
    assert stack_violations(HOURLY_BUDGET, [sized(UNKNOWN, DEAR)], limitUsdPerHour=1) == []
