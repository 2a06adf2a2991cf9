"""Values of a sweep's runs, and the rule that stops runs early."""

from __future__ import annotations

import itertools
import math

import pytest

from ops.sweep.space import Asha, Choice, Range, expand, goes_on, grid, sample, value_at

RATE = Range(low=1e-5, high=1e-1, scale="log")
SPACE: dict[str, Choice | Range] = {
    "rate": RATE,
    "layers": Range(low=1, high=4, integer=True),
    "kind": Choice(("a", "b")),
}


def test_grid_has_every_combination_once() -> None:
    found = grid({"x": Choice((1, 2)), "y": Choice((True, None, "z"))})
    assert [tuple(one.values()) for one in found] == [
        *((1, True), (1, None), (1, "z")),
        *((2, True), (2, None), (2, "z")),
    ]


def test_samples_are_in_their_ranges_and_of_their_types() -> None:
    for values in expand("random", SPACE, 200, 3):
        assert isinstance(values["rate"], float)
        assert 1e-5 <= values["rate"] <= 1e-1
        assert values["layers"] in (1, 2, 3, 4)
        assert isinstance(values["layers"], int)
        assert values["kind"] in ("a", "b")


def test_each_order_of_magnitude_of_a_log_range_gets_its_share() -> None:
    rates = [sample({"rate": RATE}, 0, number)["rate"] for number in range(400)]
    below = sum(isinstance(rate, float) and rate < 1e-3 for rate in rates)
    assert 150 < below < 250


def test_more_runs_another_parameter_or_another_order_change_no_earlier_run() -> None:
    few, many = expand("random", SPACE, 3, 7), expand("random", SPACE, 9, 7)
    assert list(many[:3]) == list(few)
    wider = {"more": Choice((1, 2)), **dict(reversed(SPACE.items()))}
    for number, values in enumerate(few):
        again = sample(wider, 7, number)
        assert {name: again[name] for name in values} == values
    assert expand("random", SPACE, 3, 8) != few


def test_samples_are_the_same_on_every_machine() -> None:
    assert sample(SPACE, 7, 0) == {"rate": 4.639e-05, "layers": 3, "kind": "a"}


def test_rungs_grow_by_the_reduction() -> None:
    rungs = Asha(min_steps=10, reduction=3).rungs()
    assert list(itertools.islice(rungs, 4)) == [10, 30, 90, 270]


def test_value_at_a_rung_is_the_first_one_not_before_it() -> None:
    values = {5: 1.0, 12: 2.0, 20: 3.0}
    assert value_at(values, 10) == 2.0
    assert value_at(values, 12) == 2.0
    assert value_at(values, 21) is None


@pytest.mark.parametrize(
    ("value", "peers", "maximize", "expected"),
    [
        pytest.param(3.0, [], False, True, id="the first at a rung"),
        pytest.param(3.0, [1.0], False, False, id="worse than the only peer"),
        pytest.param(0.5, [1.0], False, True, id="better than the only peer"),
        pytest.param(
            2.0, [1.0, 3.0, 4.0, 5.0, 6.0], False, True, id="second of six, two of which go on"
        ),
        pytest.param(3.0, [1.0, 2.0, 4.0, 5.0, 6.0], False, False, id="third of six"),
        pytest.param(5.0, [1.0, 2.0], True, True, id="largest, where larger is better"),
        pytest.param(1.0, [1.0, 1.0], False, True, id="equal to the best"),
        pytest.param(math.nan, [], False, False, id="diverged, though nobody is better"),
        pytest.param(
            7.0, [math.nan, math.inf], False, True, id="the only one that has not diverged"
        ),
    ],
)
def test_a_run_goes_on_if_it_is_among_the_best_third_so_far(
    value: float, peers: list[float], maximize: bool, expected: bool
) -> None:
    assert goes_on(value, peers, 3, maximize=maximize) is expected
