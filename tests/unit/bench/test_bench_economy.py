"""Useful steps per dollar on traces whose answer is known."""

from __future__ import annotations

import pytest

from bench.spot import economy
from bench.spot.replay import SPOT_SHARE
from bench.spot.traces import Trace

HOURS = 24 * 5


def trace(*there: bool, gpus: int = 1) -> Trace:
    return Trace(name=f"t_{gpus}", gap_s=3600, nodes=1, zones={"a": there})


def earned(one: Trace) -> list[economy.Earned]:
    return economy.measure([one], (0.2, 0.6), lambda *_: None)


def test_where_spot_never_ends_all_cost_what_spot_costs() -> None:
    found = earned(trace(*[True] * HOURS))
    assert found and all(one.optimum == pytest.approx(SPOT_SHARE) for one in found)
    for one in found:
        assert one.ours / one.optimum < 1.02 and one.torchrun / one.optimum < 1.02
        assert one.steps_per_usd(one.ours) <= one.steps_per_usd(one.optimum)


def test_where_spot_never_is_all_cost_what_on_demand_costs() -> None:
    found = earned(trace(*[False] * HOURS))
    assert found and all(one.optimum == 1.0 for one in found)
    assert all(1.0 <= one.ours < 1.05 and 1.0 <= one.torchrun < 1.05 for one in found)


def test_losses_cost_torchrun_more_and_eight_gpus_eight_times_as_much() -> None:
    often = [tick % 3 != 2 for tick in range(HOURS)]
    small, large = (earned(trace(*often, gpus=gpus)) for gpus in (1, 8))
    for one, eight in zip(small, large, strict=True):
        assert one.optimum <= one.ours <= one.torchrun
        assert one.lost_ratio > 1
        assert one.steps_per_usd(one.ours) == pytest.approx(8 * eight.steps_per_usd(eight.ours))
    assert economy._lost_ratio([o for o in small if not o.provisioning_s]) > 3


def test_the_section_has_a_row_per_trace_and_the_goals() -> None:
    text = economy.section(earned(trace(*[True] * HOURS)))
    assert text.count("| t_1 |") == 2 and text.count("goal 1.1: met") == 2
