"""Every second of a run has one cause, over all of its attempts."""

from __future__ import annotations

from typing import Any

import pytest

from training.trainer.metrics.goodput import CAUSES, compute_goodput


def event(
    name: str, time: float, attempt: int = 1, step: int = 0, **details: Any
) -> dict[str, Any]:
    return {"event": name, "time": time, "attempt": attempt, "step": step, **details}


def steps(first: int, last: int, begin: float, attempt: int = 1) -> list[dict[str, Any]]:
    """Steps of one second, a tenth of it for the loader, with 0.05 s of stall before each."""
    return [
        {
            "step": step,
            "attempt": attempt,
            "time": begin + 1.05 * (step - first + 1),
            "step_time_s": 1.0,
            "loader_time_s": 0.1,
            "checkpoint_stall_s": 0.05,
        }
        for step in range(first, last + 1)
    ]


UNINTERRUPTED = [
    event("started", 105.0, startup_s=5.0),
    event("checkpoint_commit", 109.0, step=4),
    event("evaluated", 117.5, step=10, seconds=2.0),
    event("finished", 118.5, step=10, saving_s=0.75),
]


def test_an_uninterrupted_run_is_split_and_the_parts_add_up() -> None:
    found = compute_goodput(UNINTERRUPTED, steps(1, 10, 105.0))
    assert found.wall_s == pytest.approx(18.5)
    assert found.seconds == {
        "productive": pytest.approx(9.0),
        "replay": 0.0,
        "startup": 5.0,
        "loader": pytest.approx(1.0),
        "checkpoint": pytest.approx(1.25),
        "evaluation": 2.0,
        "waiting": 0.0,
        "other": pytest.approx(0.25),
    }
    assert found.fraction == pytest.approx(9.0 / 18.5)
    assert (found.attempts, found.resumes_due, found.resume_success) == (1, 0, None)


def killed_and_resumed() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Killed after step 6 at 111.3, resumed from step 4 by a process that began at 120."""
    lost = {"attempt": 1, "steps": 2, "seconds": 2.1, "until": 111.3}
    events = [
        event("started", 105.0, startup_s=5.0),
        event("checkpoint_commit", 109.5, step=4),
        event("started", 123.0, 2, step=4, startup_s=3.0, dropped=[lost]),
        event("resumed", 123.0, 2, step=4, from_step=4),
        event("finished", 130.0, 2, step=10, saving_s=0.5),
    ]
    return events, steps(1, 4, 105.0) + steps(5, 10, 123.0, attempt=2)


def test_steps_done_twice_are_replay_and_the_gap_is_waiting() -> None:
    found = compute_goodput(*killed_and_resumed())
    assert found.seconds["replay"] == pytest.approx(2.1)
    assert found.seconds["waiting"] == pytest.approx(120.0 - 111.3)
    assert found.seconds["startup"] == 8.0
    assert found.seconds["productive"] == pytest.approx(9.0)
    assert found.wall_s == pytest.approx(130.0 - 100.0)
    assert found.steps_replayed == 2
    assert (found.attempts, found.resume_success) == (2, 1.0)


def test_an_attempt_that_never_got_further_is_a_failed_resume() -> None:
    events, metrics = killed_and_resumed()
    events[2:2] = [event("checkpoint_corrupt", 113.0, 2, step=4)]
    for entry in events[3:]:
        entry["attempt"] = 3
    for line in metrics[4:]:
        line["attempt"] = 3
    found = compute_goodput(events, metrics)
    assert (found.attempts, found.resumes_due, found.resumes_done) == (3, 2, 1)
    assert found.resume_success == 0.5


def test_loading_a_checkpoint_alone_is_no_success() -> None:
    events, metrics = killed_and_resumed()
    assert compute_goodput(events[:-1], metrics).resumes_done == 1
    assert compute_goodput(events[:-1], metrics[:4]).resumes_done == 0
    assert compute_goodput(events, metrics[:4]).resumes_done == 1


def test_an_attempt_that_said_nothing_at_all_is_a_failed_resume_too() -> None:
    events, metrics = killed_and_resumed()
    for entry in events[2:]:
        entry["attempt"] = 4
    assert compute_goodput(events, metrics).resumes_due == 3


def test_starting_again_where_nothing_was_committed_is_no_resume() -> None:
    events, metrics = killed_and_resumed()
    del events[1]
    assert compute_goodput(events, metrics).resumes_due == 0


def test_clocks_that_disagree_make_no_negative_seconds() -> None:
    events, metrics = killed_and_resumed()
    for entry in events[2:]:
        entry["time"] -= 600
    for line in metrics[4:]:
        line["time"] -= 600
    found = compute_goodput(events, metrics)
    assert min(found.seconds.values()) >= 0
    assert found.seconds["waiting"] == 0


def test_a_run_without_a_line_has_no_time_to_account_for() -> None:
    found = compute_goodput([], [])
    assert (found.wall_s, found.fraction, set(found.seconds)) == (0.0, None, set(CAUSES))
