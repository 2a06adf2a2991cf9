"""What the benchmark of `trainyard run submit` calls good, and its section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from bench import submit


def outcome(seconds: float, requests: Mapping[int, Sequence[int]]) -> submit.Outcome:
    return submit.Outcome(
        sizes=submit.SIZES["small"],
        load=(1.5, 2.0),
        submit=[seconds, 0.5, 9.0],
        apply=[1.0, 1.1],
        inside=[0.2],
        requests=requests,
    )


@pytest.mark.parametrize(
    ("seconds", "requests", "good"),
    [
        (1.9, {0: [9, 9], 40: [9]}, True),
        (2.1, {0: [9, 9], 40: [9]}, False),
        (1.9, {0: [9, 9], 40: [10]}, False),
    ],
)
def test_the_median_and_a_constant_number_of_requests_are_the_goal(
    seconds: float, requests: Mapping[int, Sequence[int]], good: bool
) -> None:
    assert outcome(seconds, requests).good == good


def test_the_section_states_load_times_and_requests() -> None:
    text = submit.section(outcome(1.9, {0: [9], 40: [9, 10]}))
    assert "40 runs of one GPU present" in text and "Load average 1.5 before, 2.0 after" in text
    assert "| `trainyard run submit`, whole process | 1.90 | 9.00 | 9.00 |" in text
    assert "Goal of a median below 2 s: met" in text
    assert "9 to 9 with 0 runs present; 9 to 10 with 40 runs present" in text
