"""Processes are known by pid and start time, and ended with all that they started."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from sandbox import process
from sandbox.process import Process

IGNORES_SIGTERM = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("on", flush=True)
while True:
    signal.pause()
"""


def _spawn(tmp_path: Path, code: str, marker: str = "") -> Process:
    env = {"PATH": os.environ["PATH"], "SANDBOX_SERVICE": marker}
    return process.spawn([sys.executable, "-c", code], env, tmp_path, tmp_path / "log")


def test_a_process_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    running = _spawn(tmp_path, IGNORES_SIGTERM)
    while "on" not in (tmp_path / "log").read_text():
        assert running.alive
    running.end(0.2)
    assert not running.alive


def test_a_process_without_a_pid_file_is_found_by_its_mark(tmp_path: Path) -> None:
    marker = f"{tmp_path}/lost"
    running = _spawn(tmp_path, "import signal; signal.pause()", marker)
    try:
        # Popen returns a moment before the kernel shows the new program's environment.
        deadline = time.monotonic() + 5
        while process.find_by_marker(marker) != [running]:
            assert time.monotonic() < deadline, process.find_by_marker(marker)
        assert process.find_by_marker(f"{tmp_path}/other") == []
    finally:
        running.end(5)


def test_pid_file_round_trips_and_a_damaged_one_yields_no_process(tmp_path: Path) -> None:
    process.save(tmp_path / "x.json", Process(1, 2))
    assert process.load(tmp_path / "x.json") == Process(1, 2)
    (tmp_path / "x.json").write_text("{")
    assert process.load(tmp_path / "x.json") is None
