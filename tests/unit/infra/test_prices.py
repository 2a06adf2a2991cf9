"""One price model: nodes by their actual purchase, pools, quotas, services; and all who use it agree."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.config import ConfigError, arguments, parse, platform_record, stack_values
from infra.domain import catalog, naming, prices
from infra.domain.pools import Capacity, Fallback, NodePool, Nodes, Reservation, ReservationKind
from infra.domain.prices import Ec2Quota, Purchase, services
from infra.observability import series
from infra.queueing import quotas
from infra.sections.teams import QuotaConfig, TeamConfig
from infra.sites.aws.karpenter_manifests import capacity_types
from ops.ledger import stack_cost
from policies.rules.budget import HOURLY_BUDGET
from tests import committed
from tests.golden.example_runs import run
from tests.policy import policy_stacks
from tests.unit.infra.config_issues import codes
from tests.unit.infra.test_pools import pool
from tests.unit.ops import stack_changes
from training import placement

ROOT = Path(__file__).resolve().parents[3]
STACKS = ("local", "dev", "prod", committed.EVERY_PURCHASE)
P4D = ("p4d.24xlarge",)
SPOT, ON_DEMAND = 12.5, 21.957642
"""USD per hour of p4d.24xlarge in us-east-1."""

BLOCK = Reservation(kind=ReservationKind.CAPACITY_BLOCK, id="cr-0123456789abcdef0")
PLAIN = pool(instance_types=P4D, nodes=Nodes.KARPENTER)
FALLS_BACK = dataclasses.replace(PLAIN, fallback=Fallback.ON_DEMAND)


def labels(**changes: str) -> dict[str, str]:
    """A node of a spot pool; keyword arguments are the labels' last parts."""
    found = {
        naming.INSTANCE_TYPE: "p4d.24xlarge",
        naming.ZONE: "us-east-1a",
        naming.CAPACITY: "spot",
    }
    names = {"karpenter": naming.KARPENTER_CAPACITY, "eks": naming.EKS_CAPACITY}
    names |= {"type_": naming.INSTANCE_TYPE, "zone": naming.ZONE}
    return found | {names[key]: value for key, value in changes.items()}


@pytest.mark.parametrize(
    ("found", "usd"),
    [
        (labels(), SPOT),
        (labels(karpenter="spot"), SPOT),
        (labels(karpenter="on-demand"), ON_DEMAND),
        (labels(eks="ON_DEMAND"), ON_DEMAND),
        (labels(eks="SPOT", karpenter="on-demand"), ON_DEMAND),
        (labels(zone="eu-west-1b"), catalog.price("p4d.24xlarge", "eu-west-1").spot_usd_hour),
        (labels(type_="g6.12xlarge"), catalog.price("g6.12xlarge").on_demand_usd_hour),
        (labels(type_="unknown.large"), None),
    ],
)
def test_a_node_costs_what_it_was_bought_for(found: dict[str, str], usd: float | None) -> None:
    assert prices.node_usd_per_hour(found) == usd


def test_a_node_that_does_not_say_how_it_was_bought_has_no_price() -> None:
    assert prices.node_usd_per_hour({naming.INSTANCE_TYPE: "p4d.24xlarge"}) is None


def test_nodes_of_a_reservation_cost_what_was_paid_whatever_their_labels_say() -> None:
    reserved = pool(capacity=Capacity.ON_DEMAND, instance_types=P4D, reservation=BLOCK)
    paid = dataclasses.replace(BLOCK, usd_per_node_hour=11.5)
    cheap = dataclasses.replace(reserved, reservation=paid)
    found = labels(eks="ON_DEMAND")
    assert prices.purchase_of(found, reserved) is Purchase.RESERVED
    assert prices.node_usd_per_hour(found, reserved) == ON_DEMAND
    assert prices.node_usd_per_hour(found, cheap) == prices.per_node(cheap) == 11.5
    assert prices.hourly(cheap).idle == 11.5 * cheap.max


def test_a_pool_buys_on_demand_only_if_its_stack_file_says_so() -> None:
    assert capacity_types(PLAIN) == ["spot"] and capacity_types(FALLS_BACK) == ["spot", "on-demand"]
    assert prices.per_node(PLAIN) == SPOT and prices.per_node(FALLS_BACK) == ON_DEMAND
    assert prices.hourly(FALLS_BACK, nodes=2) == prices.Hourly(
        now=2 * SPOT, at_max=50 * ON_DEMAND, idle=0.0, at_max_preferred=50 * SPOT
    )


def test_a_team_without_on_demand_money_is_kept_out_of_a_pool_that_falls_back() -> None:
    quota = QuotaConfig(cpu="1000000", memory="1024Pi", gpus=10**6)
    team = TeamConfig(name="a", tier="research", quota=quota, on_demand_usd_per_hour=0.0)
    other = dataclasses.replace(PLAIN, name="other")
    assert [p.name for p in quotas.usable(team, [FALLS_BACK, other])] == ["other"]
    rich = team.model_copy(update={"on_demand_usd_per_hour": 2 * ON_DEMAND})
    assert quotas.shares(rich, [FALLS_BACK, other])["spot"].borrowing == 2
    assert quotas.shares(rich, [FALLS_BACK, other])["other"].borrowing is None


def test_a_cost_cap_covers_nodes_of_a_fallback() -> None:
    one = run(nodes=2)
    assert placement.usd_per_hour(one, (PLAIN,)) == 2 * SPOT
    assert placement.usd_per_hour(one, (FALLS_BACK,)) == round(2 * ON_DEMAND, 4)


def prod(pool_name: str, **changes: object) -> dict[str, object]:
    values = stack_values(ROOT / "Pulumi.prod.yaml")
    for one in values["nodePools"]:
        if one["name"] == pool_name:
            one.update(changes)
    return dict(values)


def test_a_guarantee_in_a_pool_that_falls_back_must_be_within_the_teams_money() -> None:
    with pytest.raises(ConfigError) as found:
        parse(prod("spot", fallback="on-demand"))
    assert codes(found.value) == ["teams[1].onDemandUsdPerHour: cost-cap-below-guarantee"]


@pytest.mark.parametrize(
    ("nodes", "code"), [("karpenter", "fallback-capacity"), ("managed", "pool-option")]
)
def test_only_spot_pools_of_karpenter_fall_back(nodes: str, code: str) -> None:
    with pytest.raises(ConfigError) as found:
        parse(
            prod("ondemand", nodes=nodes, min=8 if nodes == "managed" else 0, fallback="on-demand")
        )
    assert any(one.endswith(f".fallback: {code}") for one in codes(found.value))


def test_a_fallback_needs_both_quotas_of_ec2() -> None:
    both = {Ec2Quota.ON_DEMAND_P: 96 * 50, Ec2Quota.SPOT_P: 96 * 50}
    assert prices.ec2_quotas([FALLS_BACK]) == both
    assert prices.ec2_quotas([PLAIN]) == {Ec2Quota.SPOT_P: 96 * 50}
    block = dataclasses.replace(PLAIN, capacity=Capacity.ON_DEMAND, reservation=BLOCK)
    assert prices.ec2_quotas([block]) == {}


def test_documented_quotas_are_those_of_the_committed_stacks() -> None:
    text = (ROOT / "docs/aws/bootstrap.md").read_text(encoding="utf-8")
    for column, stack in ((2, "dev"), (3, "prod")):
        config = parse(stack_values(ROOT / f"Pulumi.{stack}.yaml"))
        for quota, vcpu in prices.ec2_quotas(config.pools).items():
            if quota is Ec2Quota.ON_DEMAND_STANDARD:
                continue  # The page adds the system nodes.
            (row,) = [line for line in text.splitlines() if line.startswith(f"| {quota} ")]
            assert f"{vcpu:,}" in row.split("|")[column + 1]


def rules_of(stack: str) -> list[dict[str, object]]:
    """Return the recording rules of a stack; of one without Prometheus, those that it would have."""
    values = committed.values(stack)
    values["operators"].setdefault("kubePrometheusStack", {"provided": True})
    found = arguments.observability(parse(values))
    assert found
    return [rule for group in found.groups for rule in group["rules"]]


def recorded_prices(stack: str) -> dict[tuple[str, str], float]:
    """The prices of nodes by which dashboards and reports count, by type and purchase."""
    return {
        (rule["labels"]["instance_type"], rule["labels"]["capacity"]): float(  # type: ignore[index]
            re.sub(r"[^\d.]", "", str(rule["expr"]))
        )
        for rule in rules_of(stack)
        if rule.get("record") == series.NODE_PRICE.name
    }


@pytest.mark.parametrize("stack", STACKS)
def test_caps_rules_and_the_platform_record_agree(stack: str) -> None:
    config = parse(committed.values(stack))
    recorded = recorded_prices(stack)
    exported = platform_record.platform(config, stack).export()["pools"]
    listed = {
        one["name"]: one for one in stack_cost.cost(stack, config.pools, [], None, {})["pools"]
    }
    for one in config.pools:
        usd = prices.per_node(one)
        assert usd is not None
        ways = [(name, way.value) for name in one.instance_types for way in prices.purchases(one)]
        assert max(recorded[way] for way in ways) == pytest.approx(usd)
        assert exported[one.name]["usdPerNodeHour"] == usd
        assert listed[one.name]["usdPerNodeHour"] == usd
        assert listed[one.name]["usdPerHourAtMax"] == pytest.approx(one.max * usd)
        assert placement.usd_per_hour(run(nodes=1), (one,)) == round(usd, 4)


@pytest.mark.parametrize("stack", STACKS)
def test_review_stack_cost_dashboards_and_policy_agree_on_the_whole_stack(stack: str) -> None:
    """At full scale and idle; simulated nodes have a price, but cost nothing, and the pack knows none of them."""
    config = parse(committed.values(stack))
    fixed = services.monthly(committed.rendered(stack), "us-east-1") if config.on_aws else []
    found = stack_cost.cost(stack, config.pools, fixed, None, {})["usdPerHour"]
    services_usd = prices.total(price.usd_per_hour for _, price in fixed) or 0.0
    recorded = recorded_prices(stack)
    burning = sum(  # What dashboards sum up with all nodes there, bought the most expensive way.
        one.max
        * max(recorded[n, way.value] for n in one.instance_types for way in prices.purchases(one))
        for one in config.pools
    )
    assert found["atMax"] - services_usd == pytest.approx(burning)
    real = [one for one in config.pools if not one.nodes.simulated]
    review = stack_changes.reviewed(stack_changes.as_new(stack), stack)
    assert review.unpriced == ()
    if not real:
        assert (review.usd_per_hour_idle, review.usd_per_hour_at_max) == (0.0, 0.0)
    else:
        assert review.usd_per_hour_at_max == pytest.approx(found["atMax"])
        assert review.usd_per_hour_idle == pytest.approx(found["idle"])
    nodes = [*policy_stacks.rendered(stack)]
    at_max = sum(one.max * (prices.per_node(one) or 0.0) for one in real)
    system = sum(_system_usd_per_hour(r.props) for r in nodes if r.type.endswith(":NodeGroup"))
    assert [*HOURLY_BUDGET.check(nodes, {"limitUsdPerHour": at_max + system + 0.01})] == []
    if real:
        (over,) = HOURLY_BUDGET.check(nodes, {"limitUsdPerHour": at_max + system - 0.01})
        assert over.got.startswith(f"{at_max + system:.2f} USD per hour at maximum size")


def _system_usd_per_hour(group: Mapping[str, Any]) -> float:
    """What the pack adds for a group of system nodes, which are services to the others."""
    if group["labels"].get(naming.NODE_TYPE) != "system":
        return 0.0
    (name,) = group["instanceTypes"]
    most = float(group["scalingConfig"]["maxSize"])
    return most * (prices.usd_per_hour(name, Purchase.ON_DEMAND) or 0.0)


def test_recording_rules_price_a_node_by_who_bought_it() -> None:
    (rule,) = [r for r in rules_of("prod") if r.get("record") == series.NODE_INFO.name]
    text = str(rule["expr"])
    order = [text.index(series.state_label(key)) for key in prices.PURCHASE_LABELS]
    assert order == sorted(order)
    assert '"capacity", "reserved", "pool", "block"' in text
    assert set(prices.PURCHASE_LABELS) <= set(series.NODE_LABELS)


def test_services_of_a_stack_have_prices() -> None:
    found = dict(services.monthly(committed.rendered("prod"), "us-east-1"))
    assert found["aws-cluster-eks"].usd_per_month == pytest.approx(73.0)
    files = found["aws-storage-research-files"]
    assert files.usd_per_month == pytest.approx(7200 * 0.21) and files.stateful
    assert found["aws-network-endpoints-ec2"].usd_per_month == pytest.approx(3 * 7.3)
    assert "aws-network-endpoints-s3" not in found
    assert found["aws-system-group"].usd_per_month == pytest.approx(3 * 0.768 * 730)
    kinds = [price.what for _, price in services.monthly(committed.rendered("prod"), "us-east-1")]
    assert kinds.count("NAT gateway") == kinds.count("public address") == 3
    assert all(price.usd_per_month is not None for price in found.values())


def test_services_of_another_region_are_not_known() -> None:
    price = services.of_resource("aws:ec2/natGateway:NatGateway", {}, "ap-south-1")
    assert price and price.usd_per_month is None and price.usage == ""
    assert services.volume_usd_per_month(300, region="ap-south-1") is None


def test_a_volume_costs_its_size_and_what_exceeds_the_included_performance() -> None:
    assert services.volume_usd_per_month(100) == pytest.approx(8.0)
    assert services.volume_usd_per_month(100, 6_000, 500) == pytest.approx(8 + 15 + 15)


def test_a_total_with_an_unknown_part_is_unknown() -> None:
    unknown: NodePool = dataclasses.replace(PLAIN, region="ap-south-1")
    assert prices.total_hourly([PLAIN, unknown]).at_max is None
    assert prices.total_hourly([PLAIN, unknown]).idle == 0.0


def test_a_price_is_dated_and_marked_where_it_was_only_remembered() -> None:
    date = catalog.load().regions["us-west-2"].date
    assert prices.dated("us-west-2", ["p4d.24xlarge"]) == f"of {date}"
    both = prices.dated("us-west-2", ["p6-b300.48xlarge", "p4d.24xlarge"])
    assert both == f"of {date}, only remembered: p6-b300.48xlarge"
    assert prices.dated("eu-north-1", []) == "not in the catalog for eu-north-1"
