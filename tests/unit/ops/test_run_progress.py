"""Progress of a run by the lines of its log."""

from __future__ import annotations

from ops.logs import Line
from ops.runs import progress
from ops.runs.progress import Progress


def of(*lines: str) -> Progress:
    return progress.from_log([Line(time="", text=line) for line in lines])


def test_the_trainer_s_line_of_progress_is_read() -> None:
    found = of(
        "step 110/1000  loss 5.512  1,200 tokens/s  30 s left",
        "step 120/1000  loss 5.402  1,200 tokens/s  29 s left",
        "step 120  held-out loss 5.300 (unigram 5.9)",
        "saved",
    )
    assert found == Progress(step=120, steps=1000, loss=5.402, tokens_per_s=1200.0)


def test_metric_lines_are_newer_than_lines_of_progress() -> None:
    found = of(
        "step 10/1000  loss 5.5  1 tokens/s  3 s left",
        'trainyard-metric {"step": 12, "loss": 5.25}',
        "trainyard-metric {not json",
    )
    assert found == Progress(step=12, steps=1000, loss=5.25, tokens_per_s=1.0)


def test_speed_and_time_left_follow_from_the_time_stamps() -> None:
    lines = [
        Line(time=f"2026-11-21T12:00:{second:02d}.5Z", text=f"step {step}/1000  loss 5.0")
        for second, step in ((0, 100), (10, 120), (20, 140))
    ]
    found = progress.from_log(lines)
    assert (found.steps_per_s, found.seconds_left) == (2.0, 430.0)
    assert progress.from_log(lines[:1]).seconds_left is None


def test_a_log_without_progress_has_none() -> None:
    assert of("loading", "first steps: ok") == Progress()
