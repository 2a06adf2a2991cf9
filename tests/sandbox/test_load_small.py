"""The benchmarks at their smallest size, each on its own cluster, which is deleted at the end.

Storms of preemption, and of killed controllers, run with `make soak`: how soon each is back is up to the machine.
"""

from __future__ import annotations

import json
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


_STALLED = """
import sys
from bench import __main__, storm
storm.STALL_S = 0.0
sys.exit(__main__.main(["storm", "--low", "8", "--high", "8", "--kills", "0"]))
"""


def _start(folder: Path, *arguments: str, code: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", *(("-c", code) if code else ("-m", "bench")), *arguments],
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


@pytest.mark.full_only
def test_a_benchmark_that_stalls_keeps_logs_and_objects(tmp_path: Path) -> None:
    running = _start(tmp_path, code=_STALLED)
    output, _ = running.communicate(timeout=LIMIT_S)
    assert running.returncode == 1
    error = output.splitlines()[-1]
    assert error.startswith("error: ") and "Traceback" not in output
    kept = Path(error.rpartition(": ")[2])
    assert any(one.stat().st_size for one in kept.glob("logs/kueue-system_*/*/*.log"))
    # A gang is a JobSet, which owns Jobs, or a Job.
    objects = [
        one
        for kind in ("jobsets", "jobs")
        for one in json.loads((kept / f"{kind}.json").read_text())["items"]
    ]
    assert sum("ownerReferences" not in one["metadata"] for one in objects) == 16
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
