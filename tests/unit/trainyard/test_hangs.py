"""A silent rank that others need not wait for is ended by its parent, and only such a one."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from trainyard.hangs import RankWatch
from trainyard.watchdog import IDLE, Report, write_report

LIMIT_S = 60.0
Process = subprocess.Popen[bytes]


@pytest.fixture
def rank() -> Iterator[Process]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a start, below a run's."""
    found = tmp_path / "flight" / "start-1"
    found.mkdir(parents=True)
    return found


def look(
    folder: Path, rank: Process, seconds: Iterable[int], *, limit_s: float, beats: int = 10**6
) -> None:
    """Have the parent look at each of these moments at a rank that reports every `beats` seconds."""
    watch = RankWatch(folder, 0, 1)
    for second in seconds:
        report = Report(
            rank=0,
            node="",
            pod="",
            pid=rank.pid,
            beat=second // beats,
            phase=IDLE,
            replaceable_s=limit_s,
        )
        write_report(folder, report)
        watch.look(second)


def test_a_silent_rank_is_ended_after_its_limit(
    rank: Process, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    look(folder, rank, range(60), limit_s=LIMIT_S)
    assert rank.poll() is None
    look(folder, rank, range(100), limit_s=LIMIT_S)
    assert rank.wait(30) == -signal.SIGKILL
    line = f"watchdog: rank 0 has given no sign of life for 60 s (pid {rank.pid}): it is ended\n"
    assert capsys.readouterr().err == line


@pytest.mark.parametrize(
    ("seconds", "limit_s", "beats"),
    [
        pytest.param(range(200), LIMIT_S, 50, id="each report begins the count anew"),
        pytest.param((0, 3600, 3602), LIMIT_S, 10**6, id="the parent was stopped itself"),
        pytest.param(range(200), 0.0, 10**6, id="others wait for it"),
    ],
)
def test_other_ranks_are_not_ended(
    rank: Process, folder: Path, seconds: Iterable[int], limit_s: float, beats: int
) -> None:
    look(folder, rank, seconds, limit_s=limit_s, beats=beats)
    assert rank.poll() is None
