"""When a checkpoint is due and which are kept: decisions without any storage."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.trainer.checkpoints import draft
from trainyard.store.fence import PosixFence, newest_attempt
from trainyard.store.interface import StaleAttempt
from trainyard.store.policy import SavePolicy, steps_to_delete
from trainyard.store.posix import PosixStore


def policy(
    steps: int | None = None, seconds: float | None = None, milestone: int | None = None
) -> SavePolicy:
    return SavePolicy(every_steps=steps, every_seconds=seconds, milestone_every_steps=milestone)


def test_by_steps_only_multiples_are_due() -> None:
    due = [step for step in range(1, 31) if policy(steps=10).reason(step, time_due=False)]
    assert due == [10, 20, 30]


def test_by_time_the_clock_decides() -> None:
    timed = policy(seconds=60)
    assert not timed.time_due(59.9) and timed.time_due(60)
    assert timed.reason(7, time_due=True) == "time"
    assert timed.reason(7, time_due=False) is None
    assert not policy(steps=10).time_due(1e9)


def test_a_milestone_is_due_even_between_intervals() -> None:
    both = policy(steps=10, milestone=25)
    assert both.reason(25, time_due=False) == "milestone"
    assert both.is_milestone(50) and not both.is_milestone(10)
    assert not policy(steps=10).is_milestone(10)


def kept(
    *manifests: tuple[int, float | None, bool], keep_latest: int = 2, good: int | None = None
) -> set[int]:
    made = [replace(draft(step, loss), milestone=m) for step, loss, m in manifests]
    gone = steps_to_delete(made, keep_latest=keep_latest, last_known_good=good)
    return {manifest.step for manifest in made} - set(gone)


def test_the_latest_the_best_the_milestones_and_the_last_known_good_are_kept() -> None:
    everything = [
        (10, 3.0, False),
        (20, 1.0, False),
        (30, None, True),
        (40, 2.0, False),
        (50, None, False),
        (60, 2.5, False),
        (70, None, False),
    ]
    assert kept(*everything, good=40) == {20, 30, 40, 60, 70}
    assert kept(*everything, keep_latest=1) == {20, 30, 70}


def test_the_only_checkpoint_is_never_deleted() -> None:
    assert kept((10, None, False), keep_latest=1) == {10}
    assert kept() == set()


def test_attempts_are_numbered_and_only_the_newest_passes(tmp_path: Path) -> None:
    first = PosixFence.claim(tmp_path)
    first.check()
    second = PosixFence.claim(tmp_path)
    assert (first.attempt, second.attempt, newest_attempt(tmp_path)) == (1, 2, 2)
    second.check()
    with pytest.raises(StaleAttempt, match="attempt 1 was replaced by attempt 2"):
        first.check()


def test_a_given_number_is_claimed_once_and_only_as_the_highest(tmp_path: Path) -> None:
    PosixFence.claim(tmp_path, 5).check()
    with pytest.raises(StaleAttempt, match="attempt 5 was claimed by another process"):
        PosixFence.claim(tmp_path, 5)
    with pytest.raises(StaleAttempt, match="attempt 4 was replaced by attempt 5"):
        PosixFence.claim(tmp_path, 4)
    assert PosixFence.claim(tmp_path).attempt == 6


def test_attempts_that_start_at_once_get_different_numbers(tmp_path: Path) -> None:
    claimed: list[int] = []
    threads = [
        threading.Thread(target=lambda: claimed.append(PosixFence.claim(tmp_path).attempt))
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claimed) == list(range(1, 17))


def test_the_mark_of_the_last_known_good_survives_and_rubbish_is_no_mark(tmp_path: Path) -> None:
    assert PosixStore(tmp_path).last_known_good() is None
    PosixStore(tmp_path).mark_known_good(40)
    PosixStore(tmp_path).mark_known_good(50)
    assert PosixStore(tmp_path).last_known_good() == 50
    (tmp_path / "last-known-good.json").write_text("{")
    assert PosixStore(tmp_path).last_known_good() is None
