"""Interruptions of a benchmark follow from a seed or a trace, half of them with notice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.trainer.schedules import TRACES, poisson_schedule, running_times, trace_schedule


def test_a_capacity_drop_is_an_interruption_and_zero_capacity_is_excluded() -> None:
    assert running_times([0, 1, 1, 0, 0, 1, 0, 1, 1]) == [2, 1]
    assert running_times([4, 4, 3, 3, 0, 2, 2]) == [2, 2]
    assert running_times([1, 1, 1]) == []


@pytest.mark.parametrize("name", ["calm", "busy", "gang"])
def test_a_trace_is_scaled_to_the_wanted_mean(name: str) -> None:
    found = trace_schedule(TRACES / f"{name}.json", 3, 10.0, 4000.0)
    assert sum(one.after_s for one in found) / len(found) == pytest.approx(10, rel=0.35)
    assert sum(one.after_s for one in found) <= 4000


def test_schedules_are_seeded_and_half_of_the_interruptions_have_notice() -> None:
    first = poisson_schedule(5, 10.0, 3000.0)
    assert first == poisson_schedule(5, 10.0, 3000.0) != poisson_schedule(6, 10.0, 3000.0)
    assert abs(2 * sum(one.notice for one in first) - len(first)) <= 1
    assert 200 < len(first) < 400


def test_a_trace_without_interruption_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "quiet.json"
    file.write_text(json.dumps({"metadata": {"gap_seconds": 60}, "data": [1, 1, 1]}))
    with pytest.raises(ValueError, match="no interruption"):
        trace_schedule(file, 1, 10.0, 100.0)
