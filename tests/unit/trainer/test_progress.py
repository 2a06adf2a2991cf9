"""What a run shows: lines for people and for programs, and nothing on other ranks."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from trainer.metrics.progress import EVALUATION_LOSS, METRICS, ProgressDisplay
from trainyard.contract import METRIC_LINE
from trainyard.run_logs import StepMetrics

SELDOM = 3600.0


def metrics(step: int, mfu: float | None) -> StepMetrics:
    values = dict.fromkeys((one.name for one in fields(StepMetrics)), 0.5)
    return StepMetrics(**values | {"step": step, "loss": 2.5, "mfu": mfu})  # type: ignore[arg-type]


def show(
    every: float, lines: int | None = None, *, enabled: bool = True, mfu: float | None = None
) -> None:
    display = ProgressDisplay(10, 4, every, enabled=enabled, metric_lines_every=lines)
    for step in range(5, 11):
        display.step(metrics(step, mfu))
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
    assert found[0]["loss"] == 2.5 and "mfu" not in found[0]
    assert found[-1] == {"step": 10, EVALUATION_LOSS: 0.25}


def test_nothing_is_printed_unless_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    show(SELDOM)
    assert capsys.readouterr().out == ""
    show(1e-9, 1, enabled=False)
    assert capsys.readouterr() == ("", "")


def test_metrics_of_sweeps_are_those_of_steps_and_the_held_out_loss() -> None:
    assert set(METRICS) - {EVALUATION_LOSS} <= {one.name for one in fields(StepMetrics)}
