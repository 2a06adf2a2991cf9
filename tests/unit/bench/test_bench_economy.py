"""Useful steps per dollar on traces whose answer is known."""

from __future__ import annotations

import pytest

from bench.spot import economy
from bench.spot.replay import SPOT_SHARE
from bench.spot.traces import Trace

HOURS = 24 * 5


def trace(*there: bool) -> Trace:
    return Trace(name="made", gap_s=3600, nodes=1, zones={"a": there})


def earned(one: Trace) -> list[economy.Earned]:
    return economy.measure([one], (0.2, 0.6), lambda *_: None)


def test_where_spot_never_ends_all_cost_what_spot_costs() -> None:
    found = earned(trace(*[True] * HOURS))
    assert found and all(one.optimum == pytest.approx(SPOT_SHARE) for one in found)
    for one in found:
        assert one.ours / one.optimum < 1.02 and one.torchrun / one.optimum < 1.02


def test_where_spot_never_is_all_cost_what_on_demand_costs() -> None:
    found = earned(trace(*[False] * HOURS))
    assert found and all(one.optimum == 1.0 for one in found)
    assert all(1.0 <= one.ours < 1.05 and 1.0 <= one.torchrun < 1.05 for one in found)


def test_losses_cost_torchrun_more() -> None:
    often = [tick % 3 != 2 for tick in range(HOURS)]
    found = earned(trace(*often))
    for one in found:
        assert one.optimum <= one.ours <= one.torchrun
        assert one.lost_ratio > 1
    assert economy._lost_ratio([o for o in found if not o.provisioning_s]) > 3
