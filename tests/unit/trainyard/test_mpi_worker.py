"""The main process of an mpijob's worker: a notice goes to the ranks, not to sshd alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import waiting
from trainyard import mpi_worker

ROOT = Path(__file__).resolve().parents[3]
DEADLINE_S = 60
SSHD = "import pathlib, signal, sys; pathlib.Path(sys.argv[1]).touch(); signal.pause()"
RANK = """
import pathlib, signal, sys, time

def save(*_):
    time.sleep(0.3)
    pathlib.Path(sys.argv[1], "saved").touch()
    sys.exit(75)

signal.signal(signal.SIGTERM, save)
pathlib.Path(sys.argv[1], "ready").touch()
while True:
    time.sleep(0.05)
"""


def until(done: Callable[[], bool]) -> None:
    waiting.until(done, "the condition", DEADLINE_S, every_s=0.01)


@pytest.fixture
def rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A rank as Open MPI starts it, of this test's own world."""
    monkeypatch.setattr(mpi_worker, "RANK_ENV", f"TEST_RANK_{os.getpid()}")
    env = os.environ | {mpi_worker.RANK_ENV: "1"}
    process = subprocess.Popen([sys.executable, "-c", RANK, str(tmp_path)], env=env)
    until(lambda: (tmp_path / "ready").exists())
    yield process
    process.kill()
    process.wait()


def test_a_notice_reaches_the_ranks_and_the_worker_waits_for_them(
    rank: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    program = (
        "import sys; from trainyard import mpi_worker; "
        f"mpi_worker.RANK_ENV = {mpi_worker.RANK_ENV!r}; sys.exit(mpi_worker.main(sys.argv[1:]))"
    )
    sshd = [sys.executable, "-c", SSHD, str(tmp_path / "sshd")]
    worker = subprocess.Popen(
        [sys.executable, "-c", program, "--", *sshd], env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    until(lambda: (tmp_path / "sshd").exists())
    worker.send_signal(signal.SIGTERM)
    assert rank.wait(DEADLINE_S) == 75
    assert worker.wait(DEADLINE_S) == 75
    assert (tmp_path / "saved").exists()
