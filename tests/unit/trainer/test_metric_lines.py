"""Lines with metrics in the log of the leading rank."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from trainer.metrics.metric_lines import EVALUATION_LOSS, METRICS, MetricLines
from trainyard.contract import METRIC_LINE
from trainyard.run_logs import StepMetrics


def metrics(step: int) -> StepMetrics:
    values = dict.fromkeys((one.name for one in fields(StepMetrics)), 0.5)
    return StepMetrics(**values | {"step": step, "loss": 1 / step, "mfu": None})  # type: ignore[arg-type]


def printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, float]]:
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith(METRIC_LINE) for line in lines)
    return [json.loads(line.removeprefix(METRIC_LINE)) for line in lines]


def test_lines_are_printed_every_so_many_steps_and_for_the_last_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = MetricLines(4, last_step=10)
    for step in range(1, 11):
        lines.step(metrics(step))
    lines.evaluated(10, 0.25)
    found = printed(capsys)
    assert [one["step"] for one in found] == [4, 8, 10, 10]
    assert found[0]["loss"] == 0.25
    assert "mfu" not in found[0]
    assert found[-1] == {"step": 10, EVALUATION_LOSS: 0.25}


def test_nothing_is_printed_unless_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    lines = MetricLines(None, last_step=1)
    lines.step(metrics(1))
    lines.evaluated(1, 0.25)
    assert printed(capsys) == []


def test_metrics_of_sweeps_are_those_of_steps_and_the_held_out_loss() -> None:
    assert set(METRICS) - {EVALUATION_LOSS} <= {one.name for one in fields(StepMetrics)}
