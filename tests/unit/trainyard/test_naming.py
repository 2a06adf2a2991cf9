"""Which rank the others wait for, and which one works longer, by the ranks' reports."""

from __future__ import annotations

from typing import Any

from trainyard.culprits import NO_RANK, SLOW_LOADER, SLOW_RANK
from trainyard.naming import behind, slow_rank
from trainyard.watchdog import DATA, SAVE, STEP, Report

STEPS = range(1, 33)


def work(*ranks: tuple[float, float]) -> dict[int, dict[int, tuple[float, float]]]:
    """Own work and waiting for samples of each rank, the same in each step."""
    return {rank: dict.fromkeys(STEPS, one) for rank, one in enumerate(ranks)}


def found(*ranks: tuple[float, float]) -> tuple[str, int] | None:
    slow = slow_rank(work(*ranks), STEPS)
    return slow and slow[:2]


def test_the_rank_that_works_a_third_longer_is_named() -> None:
    assert found((0.010, 0.0), (0.013, 0.0), (0.010, 0.0)) == (SLOW_RANK, 1)
    assert found((0.010, 0.0), (0.011, 0.0), (0.010, 0.0)) is None


def test_single_long_steps_name_nobody() -> None:
    reports = work((0.010, 0.0), (0.010, 0.0))
    reports[1] |= dict.fromkeys(range(1, 12), (0.100, 0.0))
    assert slow_rank(reports, STEPS) is None


def test_a_loader_is_named_by_its_share_and_all_of_them_without_a_rank() -> None:
    assert found((0.010, 0.0001), (0.010, 0.005)) == (SLOW_LOADER, 1)
    assert found((0.010, 0.005), (0.010, 0.005)) == (SLOW_LOADER, NO_RANK)


def report(rank: int, **values: Any) -> Report:
    return Report(rank=rank, node="n", pod="", phase=STEP, **values)


def test_the_rank_behind_is_the_one_with_fewer_steps_then_phases_then_collectives() -> None:
    at_five = [report(rank, steps=5) for rank in range(3)]
    assert behind(dict(enumerate([at_five[0], report(1, steps=4), at_five[2]]))) == [1]
    late = Report(rank=1, node="n", pod="", steps=5, phase=DATA)
    assert behind({0: at_five[0], 1: late}) == [1]
    saving = Report(rank=2, node="n", pod="", steps=5, phase=SAVE)
    assert behind({0: at_five[0], 1: late, 2: saving}) == [2]
    few = [report(rank, steps=5, issued={"0": 7 - (rank == 2)}) for rank in range(3)]
    assert behind(dict(enumerate(few))) == [2]
    idle = [report(rank, issued={"0": 7}, waiting=rank != 1) for rank in range(3)]
    assert behind(dict(enumerate(idle))) == [1]
    assert behind(dict(enumerate(at_five))) == []
    assert behind({0: at_five[0]}) == [0]
