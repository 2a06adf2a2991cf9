"""Quotas: guarantees, borrowing, lending and cost caps stay within the pools."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from infra.config import parse
from infra.domain import naming, prices
from infra.domain.pools import Capacity, NodePool, Reservation, ReservationKind
from infra.queueing import kueue, quotas
from infra.queueing.quotas import Share
from infra.sections.teams import QuotaConfig, TeamConfig
from tests.golden.example_runs import platform, run, stack_values
from tests.unit.infra.test_pools import pool
from training import placement

P4D = ("p4d.24xlarge",)
PRICE = 21.957642
"""USD for an hour of p4d.24xlarge in us-east-1."""

SPOT = pool(name="spot", max=10, instance_types=P4D)
ON_DEMAND = pool(name="ondemand", capacity=Capacity.ON_DEMAND, max=4, instance_types=P4D)
BLOCK = dataclasses.replace(
    ON_DEMAND,
    name="block",
    reservation=Reservation(kind=ReservationKind.CAPACITY_BLOCK, id="cr-0123456789abcdef0"),
)
POOLS = (ON_DEMAND, BLOCK, SPOT)
LARGE = QuotaConfig(cpu="1000000", memory="1024Pi", gpus=10**6)


def team(**changes: Any) -> TeamConfig:
    """A research team that owns two spot nodes."""
    base = TeamConfig(name="a", tier="research", guaranteed={"spot": 2}, quota=LARGE)
    return base.model_copy(update=changes)


def gpus(found: TeamConfig, flavor: str) -> dict[str, str]:
    """GPU quota of a flavor in the ClusterQueue of a team."""
    spec = kueue.cluster_queue(found, "c", POOLS)["spec"]
    flavors = {f["name"]: f["resources"] for f in spec["resourceGroups"][0]["flavors"]}
    return next(dict(r) for r in flavors[flavor] if r["name"] == naming.GPU)


def test_limits_are_counted_in_whole_nodes() -> None:
    limited = team(borrowing={"spot": 3}, lending={"spot": 1})
    assert gpus(limited, "spot") == {
        "name": naming.GPU,
        "nominalQuota": "16",
        "borrowingLimit": "24",
        "lendingLimit": "8",
    }


@pytest.mark.parametrize(
    ("cap", "nodes"),
    [(PRICE, 1), (2 * PRICE, 2), (2 * PRICE - 0.01, 1), (1000.0, 4), (3 * 21.0, 2)],
)
def test_cost_cap_is_converted_to_whole_nodes(cap: float, nodes: int) -> None:
    found = quotas.shares(team(on_demand_usd_per_hour=cap), POOLS)
    assert found["ondemand"] == Share(guaranteed=0, borrowing=nodes, lending=None)
    assert found["spot"].borrowing is None
    assert found["block"].borrowing is None, "a block is paid for already"


def test_guaranteed_nodes_count_towards_the_cap() -> None:
    rich = team(guaranteed={"ondemand": 1}, on_demand_usd_per_hour=2.5 * PRICE)
    assert quotas.shares(rich, POOLS)["ondemand"] == Share(guaranteed=1, borrowing=1, lending=None)


def test_cap_equal_to_the_price_of_nodes_allows_them() -> None:
    h100 = dataclasses.replace(ON_DEMAND, name="h100", instance_types=("p5.48xlarge",))
    # 220.16 - 3 * 55.04 is a little less than 55.04 in floating point.
    exact = team(guaranteed={"h100": 3}, on_demand_usd_per_hour=220.16)
    assert quotas.shares(exact, [h100])["h100"].borrowing == 1


def test_cap_covers_all_on_demand_pools_together() -> None:
    second = dataclasses.replace(ON_DEMAND, name="second")
    found = quotas.shares(team(on_demand_usd_per_hour=6 * PRICE), [ON_DEMAND, second])
    assert [found[name].borrowing for name in ("ondemand", "second")] == [4, 2]


def test_smaller_of_limit_and_cap_applies() -> None:
    both = team(borrowing={"ondemand": 1}, on_demand_usd_per_hour=3 * PRICE)
    assert quotas.shares(both, POOLS)["ondemand"].borrowing == 1


def test_pool_without_quota_for_a_team_is_not_in_its_queue() -> None:
    never = team(on_demand_usd_per_hour=0.0)
    assert [p.name for p in quotas.usable(never, POOLS)] == ["spot", "block"]
    spec = kueue.cluster_queue(never, "c", POOLS)["spec"]
    assert [f["name"] for f in spec["resourceGroups"][0]["flavors"]] == ["spot", "block"]
    assert len(quotas.usable(team(), POOLS)) == 3


def test_team_maximum_excludes_what_others_do_not_lend() -> None:
    others = [
        team(),
        team(name="b", guaranteed={"spot": 4}, lending={"spot": 1}),
    ]
    assert quotas.most_nodes(others[0], POOLS, others)["spot"] == 10 - 3
    assert quotas.most_nodes(others[1], POOLS, others)["spot"] == 10
    bounded = team(borrowing={"spot": 1})
    assert quotas.most_nodes(bounded, POOLS, others)["spot"] == 3


def teams_of(**changes: Any) -> list[dict[str, Any]]:
    """The example's teams, the first changed."""
    first, second = stack_values()["teams"]
    return [first | changes, second]


def test_runs_do_not_consider_pools_without_quota_for_their_team() -> None:
    names = [p.name for p in placement.eligible_pools(run(), platform())]
    never = platform(teams=teams_of(onDemandUsdPerHour=0))
    assert names == ["spot", "ondemand"]
    assert [p.name for p in placement.eligible_pools(run(), never)] == ["spot"]


def _random_stack(rng: random.Random) -> tuple[list[NodePool], list[TeamConfig]]:
    """Pools, and teams whose guarantees fit them; limits at random."""
    pools = [
        dataclasses.replace(rng.choice(POOLS), name=f"p{n}", max=rng.randint(1, 9))
        for n in range(rng.randint(1, 4))
    ]
    left = {p.name: p.max for p in pools}
    teams = []
    for n in range(rng.randint(1, 5)):
        own = {name: rng.randint(0, rest) for name, rest in left.items() if rng.random() < 0.7}
        for name, nodes in own.items():
            left[name] -= nodes
        room = {p.name: p.max - own.get(p.name, 0) for p in pools}
        teams.append(
            team(
                name=f"t{n}",
                tier=rng.choice(["research", "production"]),
                guaranteed=own,
                borrowing={
                    name: rng.randint(0, m) for name, m in room.items() if rng.random() < 0.4
                },
                lending={name: rng.randint(0, m) for name, m in own.items() if rng.random() < 0.4},
                on_demand_usd_per_hour=rng.choice([None, 0.0, rng.uniform(0, 300)]),
            )
        )
    return pools, teams


def test_random_team_quotas_sum_to_the_pools_and_respect_limits() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(300):
        pools, teams = _random_stack(rng)
        shares = {t.name: quotas.shares(t, pools) for t in teams}
        kept = kueue.cohort("c", pools, teams)["spec"]["resourceGroups"][0]["flavors"]
        shared = {
            f["name"]: int(r["nominalQuota"])
            for f in kept
            for r in f["resources"]
            if r["name"] == naming.GPU
        }
        for one in pools:
            own = sum(s[one.name].guaranteed for s in shares.values())
            assert own * one.gpus_per_node + shared[one.name] == one.max * one.gpus_per_node
            assert shared[one.name] >= 0
            for t in teams:
                share = shares[t.name][one.name]
                assert 0 <= quotas.most_nodes(t, pools, teams)[one.name] <= one.max
                assert share.guaranteed <= quotas.most_nodes(t, pools, teams)[one.name]
        for t in teams:
            _within_its_cap(t, pools)


def _within_its_cap(found: TeamConfig, pools: list[NodePool]) -> None:
    cap = found.on_demand_usd_per_hour
    if cap is None:
        return
    shares = quotas.shares(found, pools)
    borrowed = sum(
        (shares[p.name].borrowing or 0) * (prices.per_node(p) or 0.0)
        for p in pools
        if prices.paid_on_demand(p)
    )
    own = quotas.guaranteed_usd_per_hour(found, pools)
    assert borrowed == 0 or own + borrowed <= cap + 1e-6


def test_cap_suggested_by_the_message_is_accepted() -> None:
    own = teams_of(guaranteed={"ondemand": 2}, onDemandUsdPerHour=43.92)
    assert parse(stack_values() | {"teams": own})
    first = teams_of(onDemandUsdPerHour=21.96)
    assert parse(stack_values() | {"teams": first})
