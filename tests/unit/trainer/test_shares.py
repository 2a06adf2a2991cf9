"""Which rank or loader is named for slowness, by every rank's part in the same steps."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from training.trainer.flight.recorder import StepTimes
from training.trainer.flight.shares import (
    NEEDED,
    WINDOWS,
    History,
    Slowness,
    Window,
    compare,
    window_of,
)
from trainyard.culprits import NO_RANK, SLOW_LOADER, SLOW_RANK

Times = Callable[[int], tuple[float, float]]
"""Work and wait for samples of a rank, by step."""


def windows(ranks: Mapping[int, Times], steps: range = range(1, 33)) -> dict[int, Window]:
    """What ranks report of these steps, whose duration is that of the slowest."""
    longest = {step: max(sum(times(step)) for times in ranks.values()) for step in steps}
    return {
        rank: window_of(
            StepTimes(step, longest[step] + 0.001, times(step)[1], times(step)[0]) for step in steps
        )
        for rank, times in ranks.items()
    }


def usual(_: int) -> tuple[float, float]:
    return 0.010, 0.0001


def times_longer(factor: float) -> Times:
    return lambda _: (0.010 * factor, 0.0001)


def named(found: list[Slowness]) -> list[tuple[str, int]]:
    return [(one.symptom, one.rank) for one in found]


def test_the_rank_that_works_a_third_longer_is_named() -> None:
    found, last = compare(windows({0: usual, 1: times_longer(1.3), 2: usual}), 0)
    assert named(found) == [(SLOW_RANK, 1)]
    assert last == 32
    assert found[0].what == "works 1.30 times as long as the others in each step"
    assert "waits 1.0 ms in a step for the others, they 4.0 ms" in found[0].evidence


def test_a_rank_that_works_a_tenth_longer_is_not_named() -> None:
    assert compare(windows({0: usual, 1: times_longer(1.1)}), 0)[0] == []


def test_some_long_steps_do_not_make_a_slow_rank() -> None:
    spikes = windows({0: usual, 1: lambda step: (0.050 if step % 4 == 0 else 0.010, 0.0001)})
    assert compare(spikes, 0)[0] == []


def test_the_rank_that_waits_for_samples_is_named_and_not_called_slow() -> None:
    found, _ = compare(windows({0: usual, 1: lambda _: (0.010, 0.004)}), 0)
    assert named(found) == [(SLOW_LOADER, 1)]
    assert found[0].what == "waits for samples 29% of its own time"


def test_where_all_ranks_wait_for_samples_no_rank_is_named() -> None:
    slow: Times = lambda _: (0.010, 0.004)  # noqa: E731
    assert named(compare(windows({0: slow, 1: slow}), 0)[0]) == [(SLOW_LOADER, NO_RANK)]


def test_only_steps_that_all_ranks_report_are_compared() -> None:
    found = windows({0: usual}) | windows({1: times_longer(2.0)}, range(26, 60))
    assert compare(found, 0) == ([], 0)
    assert compare(windows({0: usual, 1: times_longer(2.0)}), 30) == ([], 0)


def test_of_many_steps_ranks_report_the_same_ones() -> None:
    mine = window_of(StepTimes(step, 0.01, 0.0, 0.01) for step in range(1, 1000))
    other = window_of(StepTimes(step, 0.01, 0.0, 0.01) for step in range(200, 1200))
    assert len(mine.steps) <= 128
    assert len(set(mine.steps) & set(other.steps)) > 64


def test_a_rank_is_named_after_it_stood_out_in_most_of_the_last_windows() -> None:
    history = History()
    slow = compare(windows({0: usual, 1: times_longer(1.3)}), 0)[0]
    for _ in range(NEEDED - 1):
        assert history.add(slow) == []
    assert history.add([]) == []
    assert named(history.add(slow)) == [(SLOW_RANK, 1)]
    for _ in range(WINDOWS):
        history.add([])
    assert history.add(slow) == []


def test_noise_that_hits_all_ranks_alike_names_none() -> None:
    """Work that varies by a third, and a few steps five times as long."""
    chance = random.Random(5)

    def noisy(_: int) -> tuple[float, float]:
        long = 5.0 if chance.random() < 0.1 else 1.0
        return 0.010 * chance.uniform(0.8, 1.2) * long, 0.0002

    def fixed(first: int) -> Times:
        known = {step: noisy(step) for step in range(first, first + 64)}
        return known.__getitem__

    history, alarms = History(), 0
    for number in range(2000):
        steps = range(64 * number + 1, 64 * number + 65)
        ranks = {rank: fixed(steps.start) for rank in range(2)}
        alarms += len(history.add(compare(windows(ranks, steps), 0)[0]))
    assert alarms == 0
