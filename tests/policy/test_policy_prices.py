"""The policy pack prices the pools of every committed stack as the program does, and trusts no label for it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from infra.config import parse
from infra.domain import naming, prices
from policies.rules.budget import HOURLY_BUDGET, highest_price, paid_prices
from policies.rules.model import UNKNOWN, Resource, Violation
from policies.rules.node_pools import node_pools
from tests import committed
from tests.policy.policy_resources import (
    config_map,
    karpenter_pool,
    node_class,
    node_group,
    platform_record,
    template,
)
from tests.policy.policy_stacks import check, rendered

P4D, P4D_SPOT = 21.957642, 12.5
"""USD per hour in us-east-1."""
OURS, OTHER = "cr-0123456789abcdef0", "cr-0fedcba9876543210"


@pytest.mark.parametrize(
    "stack", ["dev", "prod", committed.MANAGED_BLOCK, committed.EVERY_PURCHASE]
)
def test_the_pack_and_the_program_price_pools_alike(stack: str) -> None:
    pools = {p.name: p for p in parse(committed.values(stack)).pools}
    paid = paid_prices(rendered(stack))
    found = {
        pool.name: highest_price(pool, pools[pool.name].region, paid)
        for pool in node_pools(rendered(stack))
        if pool.name in pools
    }
    assert found == {name: prices.per_node(pool) for name, pool in pools.items()}


def test_the_stack_with_every_purchase_has_reservations_of_all_kinds_and_prices() -> None:
    pools = parse(committed.values(committed.EVERY_PURCHASE)).pools
    ways = {(pool.nodes, purchase) for pool in pools for purchase in prices.purchases(pool)}
    assert len(ways) == 2 * len(prices.Purchase)
    reserved = [pool for pool in pools if pool.reservation]
    assert {(p.nodes, p.reservation.kind) for p in reserved if p.reservation} == {
        (nodes, kind)
        for nodes in {pool.nodes for pool in pools}
        for kind in type(reserved[0].reservation.kind)  # type: ignore[union-attr]
    }
    listed = [prices.usd_per_hour(p.instance_types[0], prices.Purchase.ON_DEMAND) for p in reserved]
    assert sum(prices.per_node(p) != usd for p, usd in zip(reserved, listed, strict=True)) == 4


def record(text: Any, name: str = naming.PLATFORM_RECORD) -> Resource:
    return config_map(name, {naming.PLATFORM_RECORD_KEY: text})


def managed(
    launches_into: Any = OURS, capacity: str = "ON_DEMAND", **labels: str
) -> list[Resource]:
    """One p4d.24xlarge of a node group and its launch template."""
    group = node_group("a", "p4d.24xlarge", scalingConfig={"maxSize": 1}, capacityType=capacity)
    group.props["labels"].update(labels)
    target = {"capacityReservationTarget": {"capacityReservationId": launches_into}}
    return [group, template(capacityReservationSpecification=target if launches_into else None)]


def karpenter(*selects: Any, capacity: tuple[str, ...] = ("reserved",)) -> list[Resource]:
    """One p4d.24xlarge of Karpenter and its node class."""
    pool = karpenter_pool("a", "p4d.24xlarge", capacity=capacity, limits={"nodes": "1"})
    return [pool, node_class(capacityReservationSelectorTerms=[*selects])]


def counted(resources: list[Resource]) -> float:
    """What the budget counts at maximum size."""
    (over,) = check(HOURLY_BUDGET, resources, {"limitUsdPerHour": 0.001})
    return total_of(over)


def total_of(over: Violation) -> float:
    assert over.path == "all node pools"
    return float(over.got.partition(" ")[0])


@pytest.mark.parametrize(
    "pool",
    [managed(), managed(capacity="CAPACITY_BLOCK"), karpenter({"id": OURS})],
    ids=["held", "block", "karpenter"],
)
@pytest.mark.parametrize(
    ("records", "usd"),
    [
        ([platform_record((OURS, 11.5))], 11.5),
        ([platform_record((OURS, 40))], 40.0),
        # Without a record, or a price in it, the on-demand price counts.
        ([], P4D),
        ([platform_record((OURS, None))], P4D),
        ([platform_record((OTHER, 11.5))], P4D),
        ([platform_record(("", 11.5))], P4D),
        # Where records differ, the highest price counts.
        ([platform_record((OURS, 11.5)), platform_record((OURS, 12.5), team="other")], 12.5),
        ([platform_record((OURS, 11.5)), platform_record((OURS, None), team="other")], P4D),
        ([platform_record((OURS, 40)), platform_record((OURS, None), team="other")], 40.0),
        ([platform_record((OURS, 11.5), (OURS, 12.5))], 12.5),
        ([platform_record((OURS, None), (OURS, 11.5))], P4D),
        ([platform_record((OURS, 11.5)), platform_record((OTHER, 12.5), team="other")], 11.5),
        ([record(UNKNOWN)], P4D),
        ([record(platform_record((OURS, 11.5)).props["data"]["platform.json"], "hello")], P4D),
    ],
)
def test_a_reserved_node_costs_what_the_platform_record_says_was_paid(
    pool: list[Resource], records: list[Resource], usd: float
) -> None:
    assert counted([*records, *pool]) == pytest.approx(usd, abs=0.005)


@pytest.mark.parametrize(
    ("pool", "usd"),
    [
        # Labels that claim a reservation.
        (managed("", **{"trainyard.dev/pool": "pool-0"}), P4D),
        (managed("", **{"trainyard.dev/capacity": "reserved"}), P4D),
        (managed("", **{"eks.amazonaws.com/capacityType": "CAPACITY_BLOCK"}), P4D),
        (managed("", capacity="CAPACITY_BLOCK"), P4D),
        # Nodes that may be launched outside of the reservation, or into several.
        (managed(UNKNOWN), P4D),
        (managed(capacity="SPOT"), P4D_SPOT),
        (karpenter(capacity=("reserved",)), P4D),
        (karpenter({"id": OURS}, capacity=("reserved", "on-demand")), P4D),
        (karpenter({"id": OURS}, capacity=("on-demand",)), P4D),
        (karpenter({"id": OURS}, {"id": OTHER}), P4D),
        (karpenter({"tags": {"id": OURS}}), P4D),
    ],
)
def test_only_nodes_that_launch_into_the_reservation_cost_what_was_paid(
    pool: list[Resource], usd: float
) -> None:
    records = [platform_record((OURS, 1.5), (OTHER, 1.5), ("", 1.5))]
    assert counted([*records, *pool]) == pytest.approx(usd, abs=0.005)


def test_a_type_that_is_only_sold_in_blocks_is_priced_by_what_was_paid() -> None:
    group, launch = managed()
    group.props["instanceTypes"][:] = ["p99.huge"]
    assert counted([platform_record((OURS, 11.5)), group, launch]) == 11.5
    (found,) = check(HOURLY_BUDGET, [group, launch], {"limitUsdPerHour": 1e9})
    assert found.path == "instance types"


def test_without_its_records_a_stack_costs_more() -> None:
    stack = rendered(committed.EVERY_PURCHASE)
    bare = [resource for resource in stack if not resource.urn.endswith("-platform")]
    assert len(stack) - len(bare) == 2
    unpriced, over = check(HOURLY_BUDGET, bare, {"limitUsdPerHour": 0.001})
    assert unpriced.got == "p5e.48xlarge (pool group-block)"
    # The group of p5e.48xlarge is left out, and rejected.
    assert total_of(over) > counted(stack) - 2 * 36.25


def test_a_pool_that_takes_the_label_of_a_reserved_one_costs_as_much_as_before() -> None:
    stack = copy.deepcopy(rendered(committed.EVERY_PURCHASE))
    (bought,) = [r for r in stack if r.urn.endswith("NodePool::aws-karpenter-ondemand")]
    bought.props["spec"]["template"]["metadata"]["labels"]["trainyard.dev/pool"] = "held"
    assert counted(stack) == counted(rendered(committed.EVERY_PURCHASE))
