"""What a run shows: lines for people and for programs, and nothing on other ranks."""

from __future__ import annotations

import json

import pytest

from trainer.metrics.progress import EVALUATION_LOSS, METRICS, ProgressDisplay
from trainyard.contract import METRIC_LINE

SELDOM = 3600.0
MEASURED = {"loss": 2.5, "grad_norm": 1.0, "step_time_s": 0.5}


def show(
    every: float, lines: int | None = None, *, enabled: bool = True, mfu: float | None = None
) -> None:
    display = ProgressDisplay(10, 4, every, enabled=enabled, metric_lines_every=lines)
    for step in range(5, 11):
        display.step(step, 64, 4, {**MEASURED, "mfu": mfu})
    display.evaluated(10, 0.25, 0.75)


def test_lines_come_now_and_then_and_always_for_the_last_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(SELDOM)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["step 10/10", "step 10"]
    show(1e-9, mfu=0.412)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 7
    assert "loss 2.500" in lines[0] and "MFU 41.2 %" in lines[0]


def test_programs_get_a_line_every_so_many_steps_and_for_the_last_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(SELDOM, 4)
    lines = capsys.readouterr().out.splitlines()
    found = [json.loads(line.removeprefix(METRIC_LINE)) for line in lines]
    assert [one["step"] for one in found] == [8, 10, 10]
    assert set(METRICS) - set(found[0]) == {"mfu", EVALUATION_LOSS}
    assert (found[0]["loss"], found[0]["tokens_per_s"]) == (2.5, 128.0)
    assert found[-1] == {"step": 10, EVALUATION_LOSS: 0.25}
