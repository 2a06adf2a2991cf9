"""Runs side by side: what differs, how far, and what became of the time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from training.compare import __main__ as program
from training.compare.diff import compare_losses, compare_runs, differing_settings, sample_steps
from training.compare.run_reader import RunLogs
from training.compare.table import render_table


def line(step: int, loss: float, attempt: int = 1) -> dict[str, Any]:
    return {
        "step": step,
        "loss": loss,
        "attempt": attempt,
        "time": 100.0 + step,
        "step_time_s": 0.9,
        "loader_time_s": 0.1,
        "checkpoint_stall_s": 0.0,
        "tokens_per_s": 1000.0,
        "mfu": None,
    }


def a_run(folder: Path, losses: list[float], rate: float = 0.1) -> Path:
    """A run that was killed after step 3 and resumed from step 2."""
    folder.mkdir()
    steps = [line(n, loss, 1 if n < 3 else 2) for n, loss in enumerate(losses, start=1)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in steps))
    config = {"steps": len(losses), "optimizer": {"learning_rate": rate}}
    lost = {"attempt": 1, "steps": 1, "seconds": 0.9, "until": 103.0}
    started = {"event": "started", "step": 0, "startup_s": 1.0, "world_size": 2, "config": config}
    events = [
        {**started, "time": 100.0, "attempt": 1},
        {"event": "checkpoint_commit", "step": 2, "time": 102.0, "attempt": 1, "seconds": 0.5},
        {**started, "time": 104.5, "attempt": 2, "dropped": [lost]},
        {"event": "resumed", "step": 2, "time": 104.5, "attempt": 2, "from_step": 2},
        {
            "event": "evaluated",
            "step": len(losses),
            "time": 106.0,
            "attempt": 2,
            "seconds": 0.5,
            "loss": losses[-1] + 0.1,
            "unigram_loss": 5.0,
        },
        {"event": "finished", "step": 4, "time": 107.0, "attempt": 2, "reason": "done"},
    ]
    (folder / "events.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events))
    return folder


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs that part at step 3, with different learning rates."""
    one = a_run(tmp_path / "one", [4.0, 3.0, 2.0, 1.0])
    return one, a_run(tmp_path / "two", [4.0, 3.0, 2.5, 1.5], rate=0.2)


def test_only_differing_settings_are_listed(pair: tuple[Path, Path]) -> None:
    runs = [RunLogs.read(folder) for folder in pair]
    assert differing_settings(runs) == {"optimizer.learning_rate": [0.1, 0.2]}
    assert differing_settings(runs[:1]) == {}


def test_losses_are_compared_bit_for_bit(pair: tuple[Path, Path]) -> None:
    one, two = (RunLogs.read(folder) for folder in pair)
    found = compare_losses(one, two)
    assert (found.common, found.differing_step, found.largest_difference) == (4, 3, 0.5)
    assert compare_losses(one, one).differing_step is None


def test_losses_are_shown_at_the_ends_and_between(pair: tuple[Path, Path], tmp_path: Path) -> None:
    runs = [RunLogs.read(folder) for folder in pair]
    assert sample_steps(runs) == [1, 2, 3, 4]
    long = RunLogs.read(a_run(tmp_path / "long", [1.0] * 1000))
    assert sample_steps([*runs, long]) == [1, 4, 200, 400, 600, 800, 1000]
    assert sample_steps([]) == []


def test_json_has_every_number_and_survives_json(pair: tuple[Path, Path]) -> None:
    found = json.loads(json.dumps(compare_runs([RunLogs.read(folder) for folder in pair])))
    one = found["runs"][0]
    assert (one["ended"], one["steps"], one["loss"], one["attempts"]) == ("done", 4, 1.0, 2)
    assert (one["resumes_done"], one["resumes_due"], one["steps_replayed"]) == (1, 1, 1)
    assert one["seconds"]["productive"] == pytest.approx(3.2)
    assert one["goodput"] == pytest.approx(3.2 / one["wall_s"])
    assert found["losses"]["3"] == [2.0, 2.5]
    assert found["against_first"][0]["differing_step"] == 3


def test_the_table_describes_the_differences(pair: tuple[Path, Path]) -> None:
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(render_table([RunLogs.read(folder) for folder in pair]))
    text = console.export_text()
    for words in (
        "optimizer.learning_rate",
        "differ from step 3, by 0.5 at most",
        "goodput",
        "replay",
        "1 of 1",
        "resumed from step",
    ):
        assert words in text


def test_the_command_draws_a_picture_and_prints_the_table(
    pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    picture = tmp_path / "deep" / "picture.png"
    folders = list(map(str, pair))
    monkeypatch.setattr(sys, "argv", ["compare", *folders, "--out", str(picture), "--log"])
    assert program.main() == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "Runs compared" in capsys.readouterr().out


def test_json_alone_draws_nothing_and_loads_no_torch(pair: tuple[Path, Path]) -> None:
    lines = (
        "import sys; from training.compare import __main__ as program",
        f"sys.argv = ['compare', {str(pair[0])!r}, '--json']",
        "assert program.main() == 0",
        "assert not {'torch', 'matplotlib'} & set(sys.modules)",
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["runs"][0]["name"] == "one"


def test_a_folder_without_a_run_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(sys, "argv", ["compare", str(tmp_path / "none")])
    assert program.main() == 1
    assert "none: no run found" in capsys.readouterr().err


def test_a_run_that_has_only_begun_has_gaps_and_no_errors(tmp_path: Path) -> None:
    folder = tmp_path / "young"
    folder.mkdir()
    started = {"event": "started", "step": 0, "time": 1.0, "attempt": 1, "world_size": 1}
    (folder / "events.jsonl").write_text(json.dumps(started) + "\n")
    found = compare_runs([RunLogs.read(folder)])["runs"][0]
    assert (found["loss"], found["mfu"], found["ended"]) == (None, None, "running or killed")
    render_table([RunLogs.read(folder)])
