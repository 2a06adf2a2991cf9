"""What the benchmark of the host's cost concludes from its steps."""

from __future__ import annotations

import pytest

from bench.trainer.host import TITLES, arm_cost, difference_ms, table, verdict
from bench.trainer.host_arms import WARMUP_STEPS, PairedSteps, run_alternating


def answer(extra_ms: float, pairs: int = 40) -> dict[str, object]:
    """Steps on a machine that grows slower and slower."""
    bare = [(0.010 + n / 1000, 0.007) for n in range(pairs + 1)]
    more = extra_ms / 1000
    arm = [(0.0105 + n / 1000 + 2 * more, 0.007 + more) for n in range(pairs)]
    return {"bare": bare, "arm": arm, "other_threads_s": 0.00002}


def test_step_cost_is_relative_to_neighbouring_steps() -> None:
    found = arm_cost(answer(0.05))
    assert found.clock == pytest.approx((0.1, 0.1, 0.1))
    assert found.cpu == pytest.approx((0.05, 0.05, 0.05))
    assert found.other_threads_ms == pytest.approx(0.02)
    assert difference_ms([3.0, 9.0], [1.0, 3.0, 5.0]) == pytest.approx((3000.0, 1000.0, 5000.0))


def test_steps_alternate_and_warmup_is_excluded() -> None:
    done: list[str] = []
    pairs = PairedSteps(bare=lambda: done.append("bare"), wanted=5)
    run_alternating(lambda: done.append("arm"), pairs)
    assert done[:4] == ["bare", "arm", "bare", "arm"]
    assert done[-1] == "bare"
    assert len(done) == WARMUP_STEPS + 11
    assert (len(pairs.taken["arm"]), len(pairs.taken["bare"])) == (5, 6)
    assert pairs.answer()["other_threads_s"] >= 0


def test_the_table_has_a_row_for_each_loop() -> None:
    costs = {name: arm_cost(answer(number / 2)) for number, name in enumerate(TITLES)}
    text = table(costs, 40, 1)
    assert "| accelerate | +3.000 (+3.000 to +3.000) | +1.500 (" in text
    assert "| a second bare loop | +0.000 (" in text
    assert "missed by 1.900 ms: " in text


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ((0.05, 0.01, 0.09), "; met."),
        ((0.09, 0.01, 0.2), "met by the median, its bound reaches beyond"),
        ((0.3, 0.2, 0.4), "missed by 0.200 ms: "),
        ((0.3, 0.05, 0.4), "missed by 0.200 ms, though its bound reaches below"),
    ],
)
def test_the_verdict_includes_its_confidence(more: tuple[float, float, float], words: str) -> None:
    assert words in verdict(more)
