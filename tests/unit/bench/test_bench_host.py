"""What the benchmark of the host's cost concludes from its steps."""

from __future__ import annotations

import pytest

from bench.trainer.host import TITLES, Taken, above_ms, alternate, section


def taken(extra_ms: float, pairs: int = 40) -> Taken:
    """Steps on a machine that grows slower and slower."""
    more = extra_ms / 1000
    return {
        "bare": [(0.010 + n / 1000, 0.007) for n in range(pairs + 1)],
        "arm": [(0.0105 + n / 1000 + 2 * more, 0.007 + more) for n in range(pairs)],
    }


def test_a_step_is_compared_with_the_bare_steps_around_it() -> None:
    assert above_ms(taken(0.05), 0) == pytest.approx((0.1, 0.1, 0.1))
    assert above_ms(taken(0.05), 1) == pytest.approx((0.05, 0.05, 0.05))


def test_steps_alternate_and_those_to_warm_up_do_not_count() -> None:
    done: list[str] = []
    found = alternate(lambda: done.append("bare"), lambda: done.append("arm"), 5)
    assert done[:3] == ["bare", "arm", "bare"] and done[-1] == "bare"
    assert (len(found["arm"]), len(found["bare"])) == (5, 6)


def test_the_goal_is_that_of_the_worse_of_clock_and_processor() -> None:
    text = section({name: taken(number / 2) for number, name in enumerate(TITLES)})
    assert "| a second bare loop | 0.00 (0.00 to 0.00) |" in text
    assert "| trainer, default settings | 1.00 (1.00 to 1.00) | 0.50 (0.50 to 0.50) |" in text
    assert "goal at most 0.1: missed by 1900%" in text
