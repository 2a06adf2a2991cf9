"""What recording costs, from the times of steps."""

from __future__ import annotations

import pytest

from bench.trainer.culprit import COMPARED_EVERY, cost_of, table

ANSWER = {
    "plain": [(0.010, 0.008)] * 9,
    "recorded": [(0.0101, 0.00804)] * 8,
    "compared": [(0.002, 0.002)] * 8,
    "watchdog_share": 0.001,
}


def test_a_step_that_records_is_compared_with_those_around_it() -> None:
    cost = cost_of([ANSWER, ANSWER])
    assert cost.step == pytest.approx(10.0)
    assert cost.clock == pytest.approx((0.1,) * 3)
    assert cost.cpu == pytest.approx((0.04,) * 3)
    assert cost.comparing[0] == pytest.approx(2.0 / COMPARED_EVERY)
    assert cost.watching == pytest.approx(0.01)
    assert cost.part == pytest.approx(0.013)


def test_the_goal_is_judged_by_the_sum() -> None:
    sizes = {"rounds": 1, "pairs": 8}
    assert "missed with 1.30%" in table(cost_of([ANSWER]), sizes, 1)
    cheap = {**ANSWER, "recorded": [(0.010, 0.008)] * 8}
    assert "met with 0.30%" in table(cost_of([cheap]), sizes, 1)
