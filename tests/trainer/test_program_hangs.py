"""A program that has reported and then reports no more is ended on every node, as a failure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer.outcome_programs import ROOT
from tests.trainer.ranks import DEADLINE_S, until

pytestmark = pytest.mark.long(42)

PROGRAM = """
import pathlib, signal, sys, time
import trainyard

behaviour = sys.argv[1]
if behaviour == "stuck":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
for step in range(1, 4) if behaviour != "silent" else ():
    trainyard.log(step=step, loss=1.0)
pathlib.Path("started-" + behaviour).touch()
number = 3
while True:
    time.sleep(0.2)
    if behaviour == "works":
        number += 1
        trainyard.log(step=number, loss=1.0)
    if behaviour == "saves" and trainyard.notice.requested():
        trainyard.exit_preempted()
"""


def start(folder: Path, behaviour: str, timeout_s: float = 3.0) -> subprocess.Popen[bytes]:
    """Start a node whose ranks have 2 s to stop."""
    script = folder / "train.py"
    script.write_text(PROGRAM)
    values = {"launcher": "python", "command": [str(script), behaviour]}
    file = folder / f"{behaviour}.json"
    file.write_text(json.dumps(values | {"progress_timeout_s": timeout_s}))
    env = {k: v for k, v in os.environ.items() if not k.startswith("TRAINYARD_")}
    env |= {"PYTHONPATH": str(ROOT), "TRAINYARD_RUN_DIR": str(folder), "TRAINYARD_RUN_ID": "a-v1"}
    env |= {"TRAINYARD_NOTICE_SECONDS": "7"}
    with (folder / f"{behaviour}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "trainyard.launch", "--program", str(file)],
            env=env,
            cwd=folder,
            stderr=log,
        )


@pytest.mark.parametrize("behaviour", ["stuck", "saves"])
def test_ranks_without_progress_are_ended_as_a_failure(tmp_path: Path, behaviour: str) -> None:
    """Also where the program takes SIGTERM for a notice: 75 would repeat the hang without end."""
    assert start(tmp_path, behaviour).wait(DEADLINE_S) == 1
    last = json.loads((tmp_path / "events.jsonl").read_text().splitlines()[-1])
    assert last["event"] == "failed"
    assert "a rank hangs" in last["error"]
    log = (tmp_path / f"{behaviour}.log").read_text()
    assert "launch: no progress for" in log
    assert "program.progressTimeoutSeconds" in log
    assert "stopped by a notice" not in log


def test_nodes_that_do_not_report_themselves_end_as_well(tmp_path: Path) -> None:
    other = start(tmp_path, "silent")
    until(lambda: (tmp_path / "started-silent").exists(), "the other node")
    assert start(tmp_path, "stuck").wait(DEADLINE_S) == 1
    assert other.wait(DEADLINE_S) == 1


@pytest.mark.parametrize(
    ("behaviour", "timeout_s"), [("silent", 1.0), ("works", 6.0), ("stuck", 0.0)]
)
def test_others_run_on(tmp_path: Path, behaviour: str, timeout_s: float) -> None:
    node = start(tmp_path, behaviour, timeout_s)
    until(lambda: (tmp_path / f"started-{behaviour}").exists(), "its start")
    with pytest.raises(subprocess.TimeoutExpired):
        node.wait(timeout_s + 3)
    node.send_signal(signal.SIGTERM)
    assert node.wait(DEADLINE_S) == 75
