"""The launcher, as pods run it: real processes, real commands, honest exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.ports import free_port
from tests.trainer.ranks import DEADLINE_S, RunFiles, until
from tests.trainer.runs import STEPS, Trainer, assert_same

pytestmark = pytest.mark.long(80)

Launcher = subprocess.Popen[bytes]
Launch = Callable[..., Launcher]

PAUSING_RANK = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[1], "pid-" + os.environ["RANK"]).write_text(str(os.getpid()))
while True:
    time.sleep(0.05)
"""


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Starts launchers with the given arguments; what they say goes to `log` in tmp_path."""
    started: list[Launcher] = []

    def start(*arguments: str, **facts: Any) -> Launcher:
        """`facts`: variables of the platform."""
        command = [sys.executable, "-m", "trainyard.launch", *arguments]
        env = {f"TRAINYARD_{name.upper()}": str(value) for name, value in facts.items()}
        with (tmp_path / "log").open("ab") as stream:
            started.append(
                subprocess.Popen(command, stdout=stream, stderr=stream, env={**os.environ, **env})
            )
        return started[-1]

    yield start
    for launcher in started:
        if launcher.poll() is None:
            launcher.kill()
            launcher.wait()


def read_log(tmp_path: Path) -> str:
    return (tmp_path / "log").read_text()


SLOW = ("batch.global_samples=96", "batch.micro_samples=1")
"""Steps of a tenth of a second or more: a test that acts after the third does so before the last."""


@pytest.fixture(scope="module")
def slow_control(make_trainer: Callable[[], Trainer]) -> RunFiles:
    """The uninterrupted run of two ranks with these settings."""
    trainer = make_trainer()
    assert trainer.run("control", *SLOW) == [0, 0]
    return trainer.files("control")


def trainer_command(trainer: Trainer, run: Path) -> list[str]:
    command = ["--", "-m", "trainer", "--config", str(trainer.config)]
    command += ["--run-dir", str(run)]
    settings = [f"data.path={trainer.dataset}", *SLOW]
    return [*command, *(word for setting in settings for word in ("--set", setting))]


def leader(files: RunFiles) -> Path:
    """Rank 0 of the newest attempt, as a folder in /proc."""
    newest = max((files.path / "attempts").iterdir())
    return Path("/proc", str(json.loads(newest.read_text())["pid"]))


def nodes_of_two(port: int, run_dir: Path) -> list[dict[str, Any]]:
    """The facts of each of two nodes."""
    facts = {"nodes": 2, "run_id": "two", "run_dir": run_dir, "rendezvous_port": port}
    return [{**facts, "node_rank": number} for number in range(2)]


def test_two_nodes_one_reclaimed_both_end_with_75_and_the_next_attempt_is_exact(
    trainer: Trainer, slow_control: RunFiles, launch: Launch
) -> None:
    files = trainer.files("run")
    program = ["--launcher=torchrun", *trainer_command(trainer, files.path)]
    nodes = [launch(*program, **facts) for facts in nodes_of_two(free_port(), files.path)]
    files.until_step(3)
    nodes[1].send_signal(signal.SIGTERM)
    assert [node.wait(DEADLINE_S) for node in nodes] == [75, 75]
    stopped = files.last_step()
    assert 3 <= stopped < STEPS
    assert trainer.run("run", *SLOW) == [0, 0]
    assert files.events("resumed")[-1]["from_step"] == stopped
    assert [e["reason"] for e in files.events("finished")] == ["preempted", "done"]
    assert_same(files, slow_control)


@pytest.mark.long(22)
def test_a_group_of_an_elastic_run_that_is_stopped_for_good_is_ended_by_its_launcher(
    trainer: Trainer, launch: Launch, tmp_path: Path
) -> None:
    files = trainer.files("run")
    settings = (
        "steps=1000000",
        "schedule.kind=constant",
        "groups.workers=8",
        "collective_timeout_s=4",
    )
    words = [word for setting in settings for word in ("--set", setting)]
    pod = launch(*trainer_command(trainer, files.path), *words)
    files.until_step(3)
    pid = int(leader(files).name)
    os.kill(pid, signal.SIGSTOP)
    assert pod.wait(DEADLINE_S) == 128 + signal.SIGKILL, read_log(tmp_path)
    log = read_log(tmp_path)
    assert re.search(rf"no sign of life for \d+ s \(pid {pid}\)", log), log
    again = launch(*trainer_command(trainer, files.path), *words)
    until_step_of(files, 2)
    again.send_signal(signal.SIGTERM)
    assert again.wait(DEADLINE_S) == 75, read_log(tmp_path)


def until_step_of(files: RunFiles, attempt: int) -> None:
    until(lambda: [m for m in files.metrics() if m["attempt"] == attempt], f"attempt {attempt}")


@pytest.mark.long(11)
def test_a_rank_stopped_for_ever_does_not_make_a_notice_a_failure(
    trainer: Trainer, launch: Launch, tmp_path: Path
) -> None:
    files = trainer.files("run")
    endless = ["--set", "steps=1000000"]
    words = [*trainer_command(trainer, files.path), *endless]
    node = launch("--ranks=2", *words, notice_seconds=10)
    until(lambda: files.events("checkpoint_commit"), "a checkpoint")
    os.kill(int(leader(files).name), signal.SIGSTOP)
    node.send_signal(signal.SIGTERM)
    assert node.wait(DEADLINE_S) == 75, read_log(tmp_path)


def test_a_bad_configuration_ends_with_78_and_its_line_once(launch: Launch, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("stepz: 3\n")
    program = ["-m", "trainer", "--config", str(bad), "--run-dir", str(tmp_path / "run")]
    assert launch("--ranks=2", "--", *program).wait(DEADLINE_S) == 78
    [line] = [line for line in read_log(tmp_path).splitlines() if "stepz: " in line]
    assert "did you mean steps?" in line
    assert "Traceback" not in read_log(tmp_path)


@pytest.mark.parametrize("victim", ["a rank", "the parent process of a rank"])
def test_what_is_killed_is_a_failure_and_no_process_is_left(
    victim: str, launch: Launch, tmp_path: Path
) -> None:
    script = tmp_path / "rank.py"
    script.write_text(PAUSING_RANK)
    node = launch("--ranks=2", "--", str(script), str(tmp_path))
    pids = [tmp_path / "pid-0", tmp_path / "pid-1"]
    until(lambda: all(file.exists() and file.read_text() for file in pids), "both ranks")
    processes = [Path("/proc") / file.read_text() for file in pids]
    parent = (processes[1] / "stat").read_text().rpartition(")")[2].split()[1]
    os.kill(int(processes[1].name if victim == "a rank" else parent), signal.SIGKILL)
    assert node.wait(DEADLINE_S) == 128 + signal.SIGKILL
    assert victim != "a rank" or "rank 1 ended first" in read_log(tmp_path)
    assert not any(process.exists() for process in processes)


def test_sigterm_while_waiting_for_a_node_exits_at_once_and_leaves_no_files(
    launch: Launch, tmp_path: Path
) -> None:
    port, scratch = free_port(), tmp_path / "scratch"
    [first, _] = nodes_of_two(port, tmp_path / "run")
    node = launch("--launcher=torchrun", "--", "true", **first, scratch=scratch)

    def is_waiting() -> bool:  # it keeps the store that the others are to meet at
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    until(is_waiting, "the rendezvous to open")
    assert list(scratch.glob("exit-*")) or list((tmp_path / "run").glob("exit-*"))
    node.send_signal(signal.SIGTERM)
    assert node.wait(60) == 75
    assert not list(tmp_path.glob("*/exit-*"))


def test_nodes_that_never_meet_give_up_at_the_deadline_with_a_line(
    launch: Launch, tmp_path: Path
) -> None:
    [first, _] = nodes_of_two(free_port(), tmp_path / "run")
    node = launch("--launcher=torchrun", "--join-seconds=1", "--", "true", **first)
    assert node.wait(DEADLINE_S) == 1
    assert "launch: the nodes did not meet" in read_log(tmp_path)
