"""The metrics of a group that becomes the leader are complete, though their file is opened while it trains."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from trainer.recent_metrics import RecentMetrics
from trainyard.run_logs import MetricsLog, StepMetrics


def line(step: int, attempt: int = 1) -> StepMetrics:
    values: dict[str, Any] = {field.name: 0.5 for field in fields(StepMetrics)}
    return StepMetrics(**values | {"step": step, "attempt": attempt})


def written(file: Path) -> list[tuple[int, int]]:
    """Step and attempt of each line."""
    lines = map(json.loads, file.read_text().splitlines())
    return [(one["step"], one["attempt"]) for one in lines]


def test_steps_made_while_the_file_is_opened_follow_those_that_it_lacked(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    former = MetricsLog(file, 0, enabled=True)
    for step in (1, 2, 3):
        former.append(line(step))
    recent = RecentMetrics()
    for step in (3, 4, 5):
        recent.append(line(step))
    for step in range(6, 200):
        recent.append(line(step, attempt=2))
    recent.open(file, 5, attempt=2)
    assert recent.missing == 0
    former.append(line(4))
    recent.append(line(200, attempt=2))
    recent.sync()
    recent.close()
    expected = [(step, 1) for step in (1, 2, 3)] + [(step, 2) for step in range(4, 201)]
    assert written(file) == expected


def test_a_save_fails_if_the_file_cannot_be_opened(tmp_path: Path) -> None:
    recent = RecentMetrics()
    with pytest.raises(OSError, match="No such file"):
        recent.open(tmp_path / "gone" / "metrics.jsonl", 1, attempt=1)
    recent.append(line(1))
    with pytest.raises(OSError, match="could not be opened"):
        recent.sync()
