"""A run waits for its dataset by the file that the preparation Job keeps on the volume."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from trainer.prepare import wait
from trainer.prepare.state import FAILED, READY, RUNNING, UID_ENV, StateReporter, read_state


def waited(file: Path, *, settle_s: float = 0.0, silent_s: float = 60.0) -> int:
    return wait.wait(file, settle_s, silent_s, threading.Event())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "POLL_S", 0.01)
    monkeypatch.setenv(UID_ENV, "job-1")


def test_a_failure_that_is_tried_again_is_not_the_end(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    for attempt in (1, 2):
        reporter = StateReporter(file, 3)
        reporter.failed("s3://x: no answer", final=False)
        found = read_state(file)
        assert found and (found.state, found.attempt) == (RUNNING, attempt)
    StateReporter(file, 3).failed("s3://x: no answer", final=False)
    found = read_state(file)
    assert found and found.state == FAILED


def test_an_interruption_does_not_count_as_an_attempt(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    for _ in range(5):
        StateReporter(file, 3).interrupted()
    reporter = StateReporter(file, 3)
    found = read_state(file)
    assert found and found.attempt == 1
    reporter.ready("0123456789abcdef")
    found = read_state(file)
    assert found and found.state == READY


def test_another_job_of_the_same_name_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "job.json"
    StateReporter(file, 1).failed("too little text", final=True)
    monkeypatch.setenv(UID_ENV, "job-2")
    StateReporter(file, 1)
    found = read_state(file)
    assert found and (found.state, found.attempt) == (RUNNING, 1)


def test_an_earlier_failure_is_believed_only_after_a_while(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    StateReporter(file, 1).failed("too little text", final=True)
    codes: list[int] = []
    waiting = threading.Thread(target=lambda: codes.append(waited(file, settle_s=1000)))
    waiting.start()
    waiting.join(timeout=0.2)
    assert waiting.is_alive()
    StateReporter(file, 1).ready("0123456789abcdef")
    waiting.join(timeout=30)
    assert codes == [0]


def test_a_preparation_that_was_killed_ends_the_wait(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.json"
    StateReporter(file, 3)
    assert waited(file, silent_s=0.05) == 78
    assert "dataset.resources" in capsys.readouterr().err


def test_the_commands_agree_on_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "texts").mkdir()
    for number in range(40):
        (tmp_path / "texts" / f"{number}.txt").write_text(f"text {number}")
    state = tmp_path / "out" / ".preparations" / "job.json"
    prepare = [sys.executable, "-m", "trainer.prepare", "--source", str(tmp_path / "texts")]
    ends = [*prepare, "--out", str(tmp_path / "out"), "--state", str(state)]
    assert subprocess.run(ends, capture_output=True, check=False).returncode == 0
    waits = [sys.executable, "-m", "trainer.prepare.wait", "--state", str(state)]
    assert subprocess.run(waits, capture_output=True, check=False).returncode == 0
    bad = [*prepare, "--column", "x", "--format", "jsonl", "--out", str(tmp_path / "out")]
    done = subprocess.run([*bad, "--state", str(state)], capture_output=True, check=False)
    assert done.returncode == 78
    assert waited(state) == 78
    assert "not JSON" in capsys.readouterr().err
