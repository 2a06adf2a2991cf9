"""The table of docs/failures.md: program behaviour x signal x restarts, with real processes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.ports import free_port
from tests.trainer.outcome_programs import ROOT, Gang
from tests.trainer.ranks import DEADLINE_S, until

pytestmark = pytest.mark.long(98)

DEADLINE_NOTICE_S = 7
"""The ranks are killed after 2 s of it."""


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    found = Gang(tmp_path / "run")
    yield found
    found.end()


WITHOUT_SIGNAL = [
    ("exit=0", 0),
    ("exit=1", 1),
    ("exit=3", 3),
    ("exit=75", 75),
    ("exit=78", 78),
    ("killed", 137),
    ("exit=0,exit=0", 0),
    ("exit=75,exit=75", 75),
    ("exit=78,waits", 78),
    ("exit=1,handles=75", 1),
    ("exit=1,ignores", 1),
    ("killed,stopped", 137),
    ("exit=75,handles=1", 75),
]
WITH_SIGTERM = [
    ("waits", 75),
    ("handles=75", 75),
    ("handles=0", 75),
    ("done=0", 0),
    ("done=75", 75),
    ("handles=1", 75),
    ("raises", 75),
    ("handles=78", 78),
    ("ignores", 75),
    ("stopped", 75),
    ("waits,waits", 75),
    ("handles=75,slowly=75", 75),
    ("handles=0,handles=0", 75),
    ("handles=0,done=0", 0),
    ("handles=0,waits", 75),
    ("handles=75,ignores", 75),
    ("handles=75,stopped", 75),
]
ONE_RANK = [
    ("waits,waits", signal.SIGTERM, 75),
    ("handles=75,handles=75", signal.SIGTERM, 75),
    ("handles=1,handles=75", signal.SIGTERM, 1),
    ("waits,handles=75", signal.SIGKILL, 137),
]


def size(behaviour: str) -> int:
    return behaviour.count(",") + 1


@pytest.mark.parametrize(("behaviour", "code"), WITHOUT_SIGNAL)
def test_a_program_ends_by_itself(behaviour: str, code: int, gang: Gang) -> None:
    gang.launch(behaviour, size(behaviour), DEADLINE_NOTICE_S)
    assert gang.wait() == code, gang.log


@pytest.mark.parametrize(("behaviour", "code"), WITH_SIGTERM)
def test_the_node_gets_sigterm(behaviour: str, code: int, gang: Gang) -> None:
    hangs = "ignores" in behaviour or "stopped" in behaviour
    gang.launch(behaviour, size(behaviour), DEADLINE_NOTICE_S if hangs else 60)
    gang.pids(size(behaviour))
    gang.nodes[0].send_signal(signal.SIGTERM)
    assert gang.wait() == code, gang.log
    assert ("Traceback" in gang.log) == (behaviour == "raises")
    unsaid = set(behaviour.split(",")) == {"handles=0"}
    assert ("without trainyard.finished()" in gang.log) == unsaid


@pytest.mark.parametrize(("behaviour", "number", "code"), ONE_RANK)
def test_one_rank_gets_a_signal(
    behaviour: str, number: signal.Signals, code: int, gang: Gang
) -> None:
    gang.launch(behaviour, 2)
    os.kill(gang.pids(2)[0], number)
    assert gang.wait() == code, gang.log


def test_no_process_is_left(gang: Gang) -> None:
    gang.launch("last=1,ignores", 2, DEADLINE_NOTICE_S)
    assert gang.wait() == 1
    [pid] = gang.folder.glob("pid-1")
    assert not Path("/proc", pid.read_text()).exists()


def test_what_a_shell_leaves_gets_the_notice_too(gang: Gang) -> None:
    script = gang.folder / "run.sh"
    program = f"{gang.folder / 'program.py'} {gang.folder} slowly=0"
    script.write_text(f"python3 {program} &\nwait\n")
    file = gang.folder / "shell.json"
    file.write_text(f'{{"launcher": "python", "command": ["sh", "{script}"]}}')
    gang.start(
        ["-m", "trainyard.launch", "--program", str(file)], {**os.environ, "PYTHONPATH": str(ROOT)}
    )
    [pid] = gang.pids(1)
    gang.nodes[0].send_signal(signal.SIGTERM)
    assert gang.wait() == 75, gang.log
    assert not Path("/proc", str(pid)).exists()


LEFT_BEHIND = """
import signal, subprocess, sys, time
if sys.argv[1] == "handles":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
child = "import pathlib, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
child += "; pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", child, sys.argv[2]], start_new_session=True)
time.sleep(600)
"""


@pytest.mark.parametrize("behaviour", ["handles", "dies"])
def test_a_child_that_ignores_the_notice_is_killed_soon_after_the_programs_end(
    behaviour: str, gang: Gang
) -> None:
    script, ready = gang.folder / "left.py", gang.folder / "ready"
    script.write_text(LEFT_BEHIND)
    file = gang.folder / "left.json"
    command = [str(script), behaviour, str(ready)]
    file.write_text(json.dumps({"launcher": "torchrun", "command": command}))
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TRAINYARD_NOTICE_SECONDS": str(2 * DEADLINE_S)}
    gang.start(["-m", "trainyard.launch", "--program", str(file)], env)
    until(ready.exists, "the child")
    gang.nodes[0].send_signal(signal.SIGTERM)
    assert gang.wait() == 75, gang.log


def test_the_notice_of_one_node_stops_the_others_as_preempted(gang: Gang) -> None:
    port = str(free_port())
    for node in "01":
        facts: dict[str, Any] = {
            "TRAINYARD_NODES": "2",
            "TRAINYARD_NODE_RANK": node,
            "TRAINYARD_RUN_ID": "two",
        }
        facts |= {"TRAINYARD_RENDEZVOUS_PORT": port, "TRAINYARD_RUN_DIR": str(gang.folder / "run")}
        gang.launch("handles=75,handles=75", 1, launcher="torchrun", **facts)
    gang.pids(2)
    gang.nodes[0].send_signal(signal.SIGTERM)
    assert [node.wait(DEADLINE_S) for node in gang.nodes] == [75, 75], gang.log
    assert "got a notice" in gang.log


@pytest.mark.parametrize(
    ("behaviour", "code"),
    [
        ("exit=0,exit=0", 0),
        ("exit=78,waits", 78),
        ("exit=1,handles=75", 1),
        ("killed,stopped", 137),
        ("exit=75,handles=1", 75),
    ],
)
def test_ranks_without_a_launcher_end_by_themselves(behaviour: str, code: int, gang: Gang) -> None:
    gang.launch(behaviour, 2, DEADLINE_NOTICE_S, launcher="python")
    assert gang.wait() == code, gang.log


@pytest.mark.parametrize(
    ("behaviour", "code"),
    [("handles=75,slowly=75", 75), ("handles=0,done=0", 0), ("handles=75,ignores", 75)],
)
def test_ranks_without_a_launcher_get_sigterm(behaviour: str, code: int, gang: Gang) -> None:
    gang.launch(behaviour, 2, DEADLINE_NOTICE_S, launcher="python")
    gang.pids(2)
    gang.nodes[0].send_signal(signal.SIGTERM)
    assert gang.wait() == code, gang.log


def test_a_notice_before_any_rank_started_is_preempted(gang: Gang) -> None:
    (gang.folder / "bin" / "mpirun").write_text("#!/bin/sh\ntouch $0.started\nexec sleep 600\n")
    gang.launch("exit=0,exit=0", 2)
    until((gang.folder / "bin" / "mpirun.started").exists, "mpirun")
    gang.nodes[0].send_signal(signal.SIGTERM)
    assert gang.wait() == 75, gang.log
