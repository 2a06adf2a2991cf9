"""Which pools a gang may have: the rules as cases."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from infra.addons import kueue
from training.spot.decide import Place
from training.spot.rates import INTERRUPTIONS_PER_NODE_HOUR, Exposure
from training.spot.steer import RESTART_S, Empty, History, Pool, Rules, Run, choose

HOUR_S = 3600.0
NOW = 1_800_000_000.0
SPOT = Pool(name="spot", place=Place.SPOT, usd_per_node_hour=10.0)
SECOND = Pool(name="second", place=Place.SPOT, usd_per_node_hour=11.0)
BOUGHT = Pool(name="bought", place=Place.ON_DEMAND, usd_per_node_hour=33.0)
PAID = Pool(name="paid", place=Place.RESERVED, usd_per_node_hour=20.0)
ALL = (SPOT, SECOND, PAID, BOUGHT)
RULES = Rules()
CALM = History()


def run(hours: float = 100.0, deadline_h: float | None = None, **more: object) -> Run:
    """A run of two nodes that has just been queued."""
    deadline = None if deadline_h is None else NOW + deadline_h * HOUR_S
    known = Run(nodes=2, begun=NOW, deadline=deadline, work_s=hours * HOUR_S, left_s=hours * HOUR_S)
    return replace(known, **more)  # type: ignore[arg-type]


def test_a_short_urgent_run_gets_on_demand_nodes() -> None:
    found = choose(run(2, deadline_h=2.3), (SPOT, SECOND, BOUGHT), CALM, NOW, RULES)
    assert (found.place, found.pools) == (Place.ON_DEMAND, ("bought",))


def test_a_run_with_a_deadline_gets_reserved_capacity_and_does_not_wait_for_it_for_ever() -> None:
    found = choose(run(50, deadline_h=60), ALL, CALM, NOW, RULES)
    assert (found.place, found.pools) == (Place.RESERVED, ("paid",))
    late = choose(run(50, deadline_h=60, waited_s=RULES.full_s), ALL, CALM, NOW, RULES)
    assert len(late.pools) > 1


def test_a_long_flexible_run_gets_spot_and_reserved_capacity_that_is_free() -> None:
    found = choose(run(200), ALL, CALM, NOW, RULES)
    assert (found.place, found.pools) == (Place.SPOT, ("spot", "second", "paid"))


def test_without_another_spot_pool_it_moves_to_on_demand_and_back_when_the_losses_are_old() -> None:
    past = History(losses=((NOW - 60, "spot"), (NOW, "spot")))
    moved = choose(run(200, pool="spot"), (SPOT, BOUGHT), past, NOW, RULES)
    assert (moved.place, moved.pools) == (Place.ON_DEMAND, ("bought",))
    assert "spot: its nodes were lost too often" in moved.reason
    soon = NOW + RULES.window_s / 2
    assert choose(run(200, pool="bought"), (SPOT, BOUGHT), past, soon, RULES).pools == ("bought",)
    later = NOW + RULES.window_s + 1
    assert choose(run(200, pool="bought"), (SPOT, BOUGHT), past, later, RULES).pools == ("spot",)


def test_it_does_not_return_for_a_little_work_or_to_a_market_that_was_seen_to_be_bad() -> None:
    nearly = run(200, pool="bought", left_s=0.02 * HOUR_S)
    assert choose(nearly, (SPOT, BOUGHT), CALM, NOW, RULES).place is Place.ON_DEMAND
    bad = replace(SPOT, seen=Exposure(node_s=20 * HOUR_S, losses=200.0))
    assert choose(run(200, pool="bought"), (bad, BOUGHT), CALM, NOW, RULES).pools == ("bought",)


def test_an_empty_pool_is_left_and_tried_again_at_growing_intervals() -> None:
    def tried(times: int, after_s: float) -> bool:
        past = History(empty={"spot": Empty(at=NOW, times=times)})
        return "spot" in choose(run(), (SPOT, SECOND), past, NOW + after_s, RULES).pools

    assert not tried(1, RULES.empty_s - 1) and tried(1, RULES.empty_s)
    assert not tried(3, 4 * RULES.empty_s - 1) and tried(3, 4 * RULES.empty_s)
    assert tried(1000, 32 * RULES.empty_s)


def test_a_run_waits_for_spot_only_while_its_slack_allows_a_later_try() -> None:
    empty = History(empty={"spot": Empty(at=NOW)})

    def goes(slack_h: float, after_s: float = 0.0, **more: object) -> tuple[str, ...]:
        one = run(10, deadline_h=10 + slack_h, **more)
        return choose(one, (SPOT, BOUGHT), empty, NOW + after_s, RULES).pools

    for after_s in (0.0, RULES.empty_s - 1):
        assert goes(12, after_s) == ()
        assert goes(1.5, after_s) == ("bought",)
    assert goes(12, RULES.empty_s) == ("spot",)
    # A run keeps its on-demand nodes, and does not wait after losses or with an unknown amount of work.
    assert goes(12, pool="bought") == ("bought",)
    assert goes(12, work_s=None, left_s=None) == ("bought",)
    found = choose(run(10), (SPOT, BOUGHT), empty, NOW, RULES)
    assert found.place is Place.WAIT and "it had no nodes in time" in found.reason
    both = replace(empty, losses=((NOW, "second"), (NOW, "second")))
    assert choose(run(10), (SPOT, SECOND, BOUGHT), both, NOW, RULES).pools == ("bought",)


def test_waiting_never_makes_a_run_late() -> None:
    """Spot never has nodes: each try ends at its time-out."""
    for slack_h in (0.2, 0.9, 1.5, 2.0, 3.0, 5.0, 9.0, 20.0):
        now, deadline, times, tried = NOW, NOW + (10 + slack_h) * HOUR_S, 0, 0.0
        while True:
            past = History(empty={"spot": Empty(at=tried, times=times)} if times else {})
            one = replace(run(10), deadline=deadline)
            pools = choose(one, (SPOT, BOUGHT), past, now, RULES, step_s=30.0).pools
            if pools == ("bought",):
                break
            now += RULES.start_s if pools else 30.0
            if pools:
                times, tried = times + 1, now
        assert now + RESTART_S + 10 * HOUR_S <= deadline or not times, slack_h
        assert (times > 1) == (slack_h >= 3), (slack_h, times)


def test_a_team_near_its_budget_buys_on_demand_only_for_deadlines() -> None:
    empty = History(empty={"spot": Empty(at=NOW)})
    flexible = run(may_buy=False, work_s=None, left_s=None)
    assert choose(flexible, (SPOT, BOUGHT), empty, NOW, RULES).pools == ()
    urgent = run(2, deadline_h=2.3, may_buy=False)
    assert choose(urgent, (SPOT, BOUGHT), empty, NOW, RULES).pools == ("bought",)


def test_a_run_of_unknown_length_is_urgent_only_with_a_deadline() -> None:
    unknown = run(work_s=None, left_s=None)
    assert choose(unknown, (SPOT, BOUGHT), CALM, NOW, RULES).pools == ("spot",)
    urgent = replace(unknown, deadline=NOW + 100 * HOUR_S)
    assert choose(urgent, (SPOT, BOUGHT), CALM, NOW, RULES).pools == ("bought",)


def test_a_run_that_has_not_reported_is_taken_to_need_its_longest_time() -> None:
    unknown = run(deadline_h=10, work_s=None, left_s=None, longest_s=6 * HOUR_S)
    assert choose(unknown, (SPOT, BOUGHT), CALM, NOW, RULES).pools == ("spot",)
    late = NOW + 3.5 * HOUR_S
    assert choose(unknown, (SPOT, BOUGHT), CALM, late, RULES).pools == ("bought",)
    # Nor does it stay on spot where it may be late.
    for held in ("", "spot"):
        tight = replace(unknown, longest_s=9.7 * HOUR_S, pool=held)
        assert choose(tight, (SPOT, BOUGHT), CALM, NOW, RULES).pools == ("bought",)


@pytest.mark.parametrize("held", ["", "bought"])
def test_a_start_on_spot_that_fails_at_its_time_out_leaves_time_for_on_demand(held: str) -> None:
    def goes(slack_h: float) -> tuple[str, ...]:
        one = run(6, deadline_h=6 + slack_h, pool=held)
        return choose(one, (SPOT, BOUGHT), CALM, NOW, RULES).pools

    needed_h = (RULES.start_s + 2 * RESTART_S) / HOUR_S
    assert RULES.start_s == kueue.PRODUCTION_TIMEOUTS.start_seconds
    assert goes(needed_h - 0.01) == ("bought",) and goes(needed_h + 0.01) == ("spot",)


def test_a_capacity_block_takes_runs_that_fit_and_is_left_before_its_end() -> None:
    block = replace(PAID, opens=NOW, closes=NOW + 10 * HOUR_S)
    pools = (SPOT, block)
    assert "paid" not in choose(run(5), pools, CALM, NOW - 1, RULES).pools
    assert "paid" in choose(run(5, longest_s=5 * HOUR_S), pools, CALM, NOW, RULES).pools
    assert "paid" not in choose(run(12, longest_s=12 * HOUR_S), pools, CALM, NOW, RULES).pools
    holds = run(5, longest_s=5 * HOUR_S, save_s=100.0, pool="paid")
    assert choose(holds, pools, CALM, block.closes - 101, RULES).pools == ("paid",)
    assert choose(holds, pools, CALM, block.closes - 100, RULES).pools == ("spot",)
    assert choose(holds, pools, CALM, block.closes - 160, RULES, step_s=30).pools == ("spot",)
    only = choose(replace(holds, pool=""), (block,), CALM, block.closes, RULES)
    assert (only.place, only.pools) == (Place.WAIT, ())


def test_prices_that_are_not_known_do_not_change_the_order() -> None:
    pools = tuple(replace(p, usd_per_node_hour=None) for p in (SPOT, BOUGHT))
    assert choose(run(200), pools, CALM, NOW, RULES).pools == ("spot",)
    assert choose(run(2, deadline_h=2.3), pools, CALM, NOW, RULES).pools == ("bought",)


def test_rates_are_the_prior_until_losses_or_calm_weeks_were_seen() -> None:
    hour = INTERRUPTIONS_PER_NODE_HOUR
    assert math.isclose(Exposure().rates(3).lost * HOUR_S, 3 * hour)
    calm = Exposure().after(100 * HOUR_S, nodes=10, losses=0)
    assert calm.rates(1).lost * HOUR_S < hour / 50
    bad = Exposure().after(10 * HOUR_S, nodes=1, losses=10)
    assert bad.rates(1).lost * HOUR_S > 3 * hour / 2
    old = bad.after(20 * 7 * 24 * HOUR_S, nodes=0, losses=0)
    assert math.isclose(old.rates(1).lost * HOUR_S, hour, rel_tol=0.01)


def test_a_pools_own_prior_counts_until_losses_were_seen() -> None:
    seldom, often = replace(SPOT, prior=0.02), replace(SPOT, prior=0.2)
    assert seldom.rates(3).lost * HOUR_S == pytest.approx(0.06)
    saves = run(200, save_s=120.0)
    first, second = (
        choose(saves, (one, BOUGHT), CALM, NOW, RULES).checkpoint_every_s for one in (seldom, often)
    )
    assert first == pytest.approx(second * math.sqrt(10))
    seen = Exposure().after(2000 * HOUR_S, nodes=1, losses=1000)
    after = [replace(one, seen=seen).rates(1).lost for one in (seldom, often)]
    assert after[0] == pytest.approx(after[1], rel=0.05)


def test_on_spot_the_best_interval_follows_from_measured_saves_and_losses() -> None:
    calm = replace(SPOT, seen=Exposure(node_s=1000 * HOUR_S, losses=1.0))
    wild = replace(SPOT, seen=Exposure(node_s=1000 * HOUR_S, losses=200.0))
    declared = run(200, save_s=120.0)
    often = choose(declared, (wild, BOUGHT), CALM, NOW, RULES).checkpoint_every_s
    seldom = choose(declared, (calm, BOUGHT), CALM, NOW, RULES).checkpoint_every_s
    assert often < seldom / 5 and not math.isinf(seldom)
    measured = replace(declared, measured_save_s=30.0)
    faster = choose(measured, (wild, BOUGHT), CALM, NOW, RULES).checkpoint_every_s
    assert faster == pytest.approx(often / 2)
    assert math.isinf(
        choose(run(2, deadline_h=2.3), (SPOT, BOUGHT), CALM, NOW, RULES).checkpoint_every_s
    )
