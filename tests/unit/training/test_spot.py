"""Spot, on-demand, reservation or waiting: the rules of thumb as cases, the safety net, and rates."""

from __future__ import annotations

import itertools
import random

import pytest

from training.spot.decide import Gang, Now, Place, Prices, best_interval_s, decide
from training.spot.rates import outages

PRICES = Prices(on_demand=40.0, spot={"a": 12.0, "b": 12.0})
CALM, WILD = outages(0.2), outages(20)
POOLS = {"a": CALM, "b": CALM}
BOTH = frozenset(POOLS)


def gang(hours: float, deadline_h: float | None = None, restart_s: float = 600) -> Gang:
    return Gang(
        work_s=hours * 3600,
        restart_s=restart_s,
        deadline_s=None if deadline_h is None else deadline_h * 3600,
    )


def now(one: Gang, available: frozenset[str] = BOTH, **other: object) -> Now:
    return Now(**{"elapsed_s": 0, "work_left_s": one.work_s, "available": available} | other)  # type: ignore[arg-type]


def place(one: Gang, available: frozenset[str] = BOTH, **other: object) -> Place:
    return decide(one, now(one, available, **other), PRICES, POOLS, CALM).place


def test_short_and_urgent_work_goes_to_on_demand() -> None:
    urgent = gang(0.5, 0.75)
    assert place(urgent) is place(urgent, frozenset()) is Place.ON_DEMAND


def test_work_with_a_deadline_goes_to_a_reservation() -> None:
    assert place(gang(8, 9), reserved=True) is Place.RESERVED


def test_long_and_flexible_work_goes_to_spot_and_waits_for_it() -> None:
    flexible = gang(100)
    assert place(flexible) is Place.SPOT
    assert place(flexible, frozenset()) is Place.WAIT


def test_a_search_of_short_flexible_trials_goes_to_spot() -> None:
    assert place(gang(1 / 3, restart_s=60)) is Place.SPOT


def test_losses_faster_than_restarts_leave_spot() -> None:
    one = gang(8, 16)
    pools = dict.fromkeys(POOLS, WILD)
    assert decide(one, now(one), PRICES, pools, WILD).place is Place.ON_DEMAND


def test_no_discount_is_no_reason_for_spot() -> None:
    one, same = gang(8), Prices(on_demand=10.0, spot={"a": 10.0})
    assert decide(one, now(one, frozenset("a")), same, POOLS, CALM).place is Place.ON_DEMAND


def test_a_new_start_takes_the_calmer_zone_and_a_held_one_is_kept() -> None:
    one, pools = gang(50), {"a": outages(1), "b": CALM}
    assert decide(one, now(one), PRICES, pools, CALM).pool == "b"
    held = now(one, place=Place.SPOT, pool="a")
    assert decide(one, held, PRICES, pools, CALM).pool == "a"


def test_without_an_on_demand_pool_a_run_waits_for_spot() -> None:
    one, spot_only = gang(8, 9), Prices(on_demand=None, spot={"a": 12.0})
    assert decide(one, now(one, frozenset()), spot_only, POOLS, CALM).place is Place.WAIT
    assert decide(one, now(one, frozenset("a")), spot_only, POOLS, CALM).place is Place.SPOT


def test_slack_for_a_restart_on_on_demand_is_never_given_away() -> None:
    draw = random.Random(11)
    for _ in range(40):
        hours, restart = draw.choice((1, 10)), draw.choice((60, 300, 900))
        one = gang(hours, hours * draw.choice((1.05, 1.3)), restart)
        slack = one.limit_s - one.work_s
        elapsed = slack - restart * draw.random()
        for available, held in itertools.product((BOTH, frozenset[str]()), Place):
            if held in (Place.SPOT, Place.RESERVED):
                continue
            seen = now(one, available, place=held, elapsed_s=elapsed, step_s=60)
            found = decide(one, seen, PRICES, POOLS, CALM).place
            assert found is Place.ON_DEMAND, (one, elapsed, available, held)


def test_the_interval_between_checkpoints_is_youngs() -> None:
    assert best_interval_s(50, 1) == pytest.approx(600)
