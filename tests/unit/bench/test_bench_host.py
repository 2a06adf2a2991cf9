"""What the benchmark of the host's cost concludes from its blocks."""

from __future__ import annotations

import pytest

from bench.trainer.host import TITLES, Taken, extra, table, verdict


def blocks(cost: float) -> list[Taken]:
    """Ten rounds on a machine that grows slower and slower."""
    return [Taken(wall=10 + n + 2 * cost, cpu=7 + n / 10 + cost) for n in range(10)]


def test_a_cost_is_the_difference_within_a_round_however_the_machine_drifts() -> None:
    ours, bare = [b.wall for b in blocks(0.05)], [b.wall for b in blocks(0.0)]
    assert extra(ours, bare) == pytest.approx((0.1, 0.1, 0.1))


def test_the_table_has_a_row_for_each_loop_and_the_difference_from_the_bare_one() -> None:
    costs = {"bare": 0.0, "ours": 0.04, "ours_with_all": 0.06, "accelerate": 1.0, "trainer": 1.5}
    taken = {name: blocks(costs[name]) for name in TITLES}
    text = table(taken, {"rounds": 10, "steps": 50}, 1)
    assert "| accelerate | 16.50 | +2.000 (+2.000 to +2.000) | 8.45 | +1.000 (" in text
    assert "| bare loop | 14.50 |  | 7.45 |  |" in text
    assert text.endswith("all on; met.")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ((0.05, 0.01, 0.09), "; met."),
        ((0.09, 0.01, 0.2), "met by the median, its bound reaches beyond"),
        ((0.3, 0.2, 0.4), "missed by 0.200 ms."),
        ((0.3, 0.05, 0.4), "missed by 0.200 ms, though its bound reaches below"),
    ],
)
def test_the_verdict_says_how_sure_it_is(more: tuple[float, float, float], words: str) -> None:
    assert words in verdict(more)
