"""The launcher ends a rank that gives no sign of life, and only such a one."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainyard.contract import EXIT_DIR_ENV
from trainyard.exit_codes import ExitDir
from trainyard.silence import SilentRanks, signs_of_life

LIMIT_S = 5.0
Process = subprocess.Popen[bytes]


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[Process]:
    """A process that gave one sign of life, as rank 3."""
    process = subprocess.Popen(["sleep", "600"])
    sign = tmp_path / "alive-3"
    sign.write_text(f'{{"pid": {process.pid}, "limit_s": {LIMIT_S}}}')
    os.utime(sign, ns=(0, 0))
    yield process
    process.kill()
    process.wait()


def test_a_silent_rank_is_ended_after_its_limit(
    rank: Process, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = SilentRanks(ExitDir(tmp_path))
    for second in range(5):
        ranks.end(second)
    assert rank.poll() is None
    ranks.end(5)
    assert rank.wait(30) == -signal.SIGKILL
    assert f"rank 3 has given no sign of life for 5 s (pid {rank.pid})" in capsys.readouterr().err
    ranks.end(6)
    assert not list(tmp_path.iterdir())


def test_each_sign_begins_the_count_anew(rank: Process, tmp_path: Path) -> None:
    ranks = SilentRanks(ExitDir(tmp_path))
    for second in range(20):
        if second % 4 == 0:
            os.utime(tmp_path / "alive-3", ns=(0, second + 1))
        ranks.end(second)
    assert rank.poll() is None


def test_time_in_which_the_launcher_was_stopped_itself_does_not_count(
    rank: Process, tmp_path: Path
) -> None:
    ranks = SilentRanks(ExitDir(tmp_path))
    ranks.end(0)
    ranks.end(3600)
    assert rank.poll() is None


def test_a_rank_that_ends_in_order_takes_its_sign_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(EXIT_DIR_ENV, str(tmp_path))
    with signs_of_life(LIMIT_S):
        assert [file.name for file in tmp_path.iterdir()] == ["alive-0"]
    assert not list(tmp_path.iterdir())
