"""The learning rate is a pure function of the step."""

from __future__ import annotations

from itertools import pairwise

import pytest

from trainer.config.settings import ScheduleConfig
from trainer.schedule import learning_rate


def rates(kind: str, steps: int = 100, warmup: int = 10, final: float = 0.1) -> list[float]:
    schedule = ScheduleConfig(kind=kind, warmup_steps=warmup, final_fraction=final)  # type: ignore[arg-type]
    return [learning_rate(schedule, 2.0, step, steps) for step in range(1, steps + 1)]


@pytest.mark.parametrize("kind", ["cosine", "linear", "constant"])
def test_it_climbs_in_equal_steps_to_the_peak(kind: str) -> None:
    climbing = rates(kind)[:10]
    assert climbing == pytest.approx([0.2 * k for k in range(1, 11)])


@pytest.mark.parametrize("kind", ["cosine", "linear"])
def test_it_falls_all_the_way_to_the_final_fraction_at_the_last_step(kind: str) -> None:
    falling = rates(kind)[9:]
    assert all(a > b for a, b in pairwise(falling))
    assert falling[-1] == pytest.approx(0.2)


def test_cosine_is_halfway_at_half_time_and_linear_too() -> None:
    for kind in ("cosine", "linear"):
        assert rates(kind, steps=110)[59] == pytest.approx(1.1)


def test_constant_stays_at_the_peak() -> None:
    assert set(rates("constant")[9:]) == {2.0}


def test_without_warm_up_the_first_step_has_almost_the_peak() -> None:
    assert rates("cosine", warmup=0)[0] == pytest.approx(2.0, rel=0.01)
