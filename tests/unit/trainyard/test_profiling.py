"""A file in the run's folder has some steps profiled."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest
import torch

from trainyard import profiling
from trainyard.profiling import StepProfiler


@pytest.fixture
def profiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StepProfiler:
    monkeypatch.setattr(profiling, "_POLL_S", 0.0)
    return StepProfiler(tmp_path)


def steps(profiler: StepProfiler, numbers: range) -> None:
    """Take these steps: each multiplies a matrix of its own size."""
    for number in numbers:
        torch.ones(number, number) @ torch.ones(number, number)
        profiler.step_done(number)


def test_the_steps_after_the_request_are_traced_once(
    profiler: StepProfiler, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps(profiler, range(1, 4))
    assert not list(tmp_path.iterdir())
    (tmp_path / "profile").write_text("2\n")
    steps(profiler, range(4, 9))
    profiler.wait()
    trace, table = (tmp_path / "profiles" / f"step-00000005.{end}" for end in ("json.gz", "txt"))
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    assert len([event for event in events if event.get("name") == "aten::mm"]) == 2
    assert "aten::mm" in table.read_text()
    assert sorted(path.name for path in tmp_path.rglob("*")) == sorted(
        ["profiles", trace.name, table.name]
    )
    assert f"profile: steps 5 to 6: {trace}" in capsys.readouterr().err


def test_an_empty_request_is_for_five_steps(
    profiler: StepProfiler, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "profile").touch()
    steps(profiler, range(1, 20, 3))  # a program that reports every third step
    profiler.wait()
    assert (tmp_path / "profiles" / "step-00000002.json.gz").exists()
    assert "steps 2 to 7" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0", "101", "many", "-1", "1.5"])
def test_another_number_is_refused_with_a_line(
    profiler: StepProfiler, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "profile").write_text(text)
    steps(profiler, range(1, 4))
    assert not list(tmp_path.iterdir())
    assert "must be 1 to 100" in capsys.readouterr().err


def test_a_failure_is_a_line_and_no_more(
    profiler: StepProfiler,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "profile").touch()
    (tmp_path / "profiles").write_text("not a folder")
    steps(profiler, range(1, 9))
    profiler.wait()
    monkeypatch.delitem(sys.modules, "torch")
    (tmp_path / "profile").touch()
    profiler.step_done(9)
    printed = capsys.readouterr().err.splitlines()
    assert [line.startswith("profile: ") for line in printed] == [True, True]
    assert "FileExistsError" in printed[0] and "does not use torch" in printed[1]
