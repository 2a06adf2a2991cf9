"""The benchmarks at their smallest size, each on its own cluster, which is deleted at the end.

Storms of preemption, and of killed controllers, run with `make soak`: how soon each is back is up to the machine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import paths
from tests.sandbox.node_kit import until

pytestmark = [pytest.mark.sandbox, pytest.mark.long(27)]

LIMIT_S = 540.0
"""Of one command, on a machine that may be busy with other tests; an idle one needs about 30 s."""


def _start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "bench", *arguments],
        cwd=paths.PROJECT,
        env=os.environ | {"TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _services(folder: Path) -> list[str]:
    """Services of clusters below this folder that still run, by the mark in their environment."""
    marker = f"SANDBOX_SERVICE={folder}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            entries = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        found += [e.decode() for e in entries if e.startswith(marker)]
    return found


def _assert_nothing_is_left(folder: Path) -> None:
    assert list(folder.glob("trainyard-bench-*")) == []
    until(lambda: not _services(folder), "no service of the cluster runs", 180.0)


@pytest.mark.full_only
def test_gangs_are_admitted_as_a_whole_within_the_quota_by_both_configurations(
    tmp_path: Path,
) -> None:
    running = _start(tmp_path, "admission", "--nodes", "16", "--workloads", "12")
    output, _ = running.communicate(timeout=LIMIT_S)
    assert running.returncode == 0, output
    for arm in ("ours", "minimal"):
        row = next(line for line in output.splitlines() if line.startswith(f"| {arm} |"))
        assert row.endswith("| 0 |"), output
    _assert_nothing_is_left(tmp_path)


@pytest.mark.full_only
def test_every_gang_finishes_once_although_it_is_preempted(tmp_path: Path) -> None:
    running = _start(tmp_path, "storm", "--low", "8", "--high", "8", "--kills", "0")
    output, _ = running.communicate(timeout=LIMIT_S)
    assert running.returncode == 0, output
    assert "| high-priority gangs finished once | 8 | 8 |" in output
    assert " Preempted" in output
    _assert_nothing_is_left(tmp_path)


def test_interrupted_benchmark_stops_its_cluster(tmp_path: Path) -> None:
    running = _start(tmp_path, "storm")
    assert running.stdout is not None
    for line in running.stdout:
        if "creating" in line:
            break
    assert _services(tmp_path)
    running.send_signal(signal.SIGTERM)
    output, _ = running.communicate(timeout=LIMIT_S)
    assert running.returncode == 130
    assert "interrupted" in output
    _assert_nothing_is_left(tmp_path)
