"""A process that takes over the metrics of a run writes what its predecessor has not, while it goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainyard import session
from trainyard.contract import EVENTS_FILE
from trainyard.reporting import Reporter
from trainyard.run_info import run
from trainyard.run_logs import MetricsLog, StepMetrics


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a run in which this process is the only one."""
    for name in ("RUN_DIR", "CHECKPOINTS", "CHECKPOINT_STORE"):
        monkeypatch.setenv(f"TRAINYARD_{name}", "")
    run.use(tmp_path)
    monkeypatch.setattr(session, "metrics", [])
    session.current.cache_clear()
    return tmp_path


def log(reporter: Reporter, *steps: int) -> None:
    for step in steps:
        others = dict.fromkeys(("lr", "grad_norm", "mfu"))
        times = {"step_time_s": 0.5, "loader_time_s": 0.0, "collective_time_s": 0.0}
        reporter.log(step, 0.5, 8, 2, **times, **others)


def written(folder: Path) -> list[tuple[int, int]]:
    """Step and attempt of each line."""
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [(one["step"], one["attempt"]) for one in lines]


def leading(folder: Path, attempt: int) -> Reporter:
    """A reporter that keeps the lines of another's steps 3, 4 and 5 when it takes over."""
    reporter = Reporter()
    reporter.waits = True
    log(reporter, 3, 4, 5)
    session.renew(attempt)
    reporter.take_over()
    return reporter


def test_steps_made_while_the_file_is_opened_follow_those_that_it_lacked(folder: Path) -> None:
    former = MetricsLog(folder / "metrics.jsonl", 0, enabled=True)
    for step in (1, 2, 3):
        former.append(StepMetrics(**LINE | {"step": step}))  # type: ignore[arg-type]
    reporter = leading(folder, 2)
    log(reporter, *range(6, 200))
    reporter.open(5)
    assert reporter.missing == 0
    former.append(StepMetrics(**LINE | {"step": 4}))  # type: ignore[arg-type]
    log(reporter, 200)
    reporter.sync()
    reporter.close()
    assert written(folder) == [(s, 1) for s in (1, 2, 3)] + [(s, 2) for s in range(4, 201)]
    assert (folder / EVENTS_FILE).exists()


def test_a_save_fails_while_the_file_cannot_be_written_and_then_no_line_is_missing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reporter = leading(folder, 1)
    (folder / "metrics.jsonl").mkdir()
    with pytest.raises(IsADirectoryError):
        reporter.open(2)
    log(reporter, 6)
    with pytest.raises(IsADirectoryError):
        reporter.sync()
    (folder / "metrics.jsonl").rmdir()
    reporter.sync()
    log(reporter, 7)
    assert [step for step, _ in written(folder)] == [3, 4, 5, 6, 7]


LINE = {
    **{"step": 1, "loss": 0.5, "tokens": 8, "lr": None, "step_time_s": 0.5, "loader_time_s": 0.0},
    **{"attempt": 1, "time": 0.0, "tokens_per_s": None, "samples_per_s": None, "mfu": None},
    **{"grad_norm": None, "collective_time_s": 0.0, "checkpoint_stall_s": 0.0},
}
