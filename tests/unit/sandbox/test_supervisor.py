"""The supervisor starts what dies, takes over what runs, and leaves services alone when it ends."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import paths, process, supervisor
from sandbox.process import Process

DEADLINE_S = 60.0


class Supervised:
    def __init__(self, home: Path) -> None:
        self.state = paths.State(home)
        self.keeper: Process | None = None

    def write(self, argument: str = "1") -> None:
        code = "import signal; signal.pause()"
        spec = {"name": "sleeper", "argv": [sys.executable, "-c", code, argument], "env": {}}
        supervisor.services_file(self.state).write_text(json.dumps([spec]))

    def want_nothing(self) -> None:
        supervisor.services_file(self.state).write_text("[]")

    def start(self) -> None:
        env = {**os.environ, "SANDBOX_HOME": str(self.state.home), "PYTHONPATH": str(paths.PROJECT)}
        argv = [sys.executable, "-m", "sandbox.supervisor"]
        self.keeper = process.spawn(argv, env, self.state.home, self.state.home / "supervisor.log")

    def service(self, other_than: Process | None = None) -> Process:
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            found = process.load(self.state.pids / "sleeper.json")
            if found and found.alive and found != other_than:
                return found
            select.select([], [], [], 0.02)
        raise AssertionError((self.state.home / "supervisor.log").read_text())

    def end(self) -> None:
        if self.keeper:
            self.keeper.end(5)
        for left in process.find_by_marker(supervisor.service_marker(self.state, "sleeper")):
            left.end(5)


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    one = Supervised(tmp_path)
    one.write()
    one.start()
    yield one
    one.end()


def test_a_new_supervisor_takes_over_what_a_killed_one_left_running(supervised: Supervised) -> None:
    running = supervised.service()
    assert supervised.keeper
    supervised.keeper.send(signal.SIGKILL)
    assert supervised.keeper.wait(5)
    assert running.alive
    supervised.start()
    running.send(signal.SIGKILL)
    assert supervised.service(other_than=running)


def test_a_changed_command_replaces_the_running_service(supervised: Supervised) -> None:
    first = supervised.service()
    supervised.write(argument="2")
    assert supervised.keeper
    supervised.keeper.send(signal.SIGHUP)
    supervised.service(other_than=first)
    assert not first.alive


def test_a_service_that_leaves_the_list_is_ended(supervised: Supervised) -> None:
    running = supervised.service()
    supervised.want_nothing()
    assert supervised.keeper
    supervised.keeper.send(signal.SIGHUP)
    assert running.wait(5)
    _until_gone(supervised.state.pids / "sleeper.json")


def test_a_new_supervisor_ends_what_left_the_list_while_none_ran(supervised: Supervised) -> None:
    running = supervised.service()
    assert supervised.keeper
    supervised.keeper.send(signal.SIGKILL)
    assert supervised.keeper.wait(5)
    supervised.want_nothing()
    supervised.start()
    assert running.wait(5)


def _until_gone(path: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while path.exists():
        assert time.monotonic() < deadline, f"{path} is still there"
        select.select([], [], [], 0.02)


def test_stopped_supervisor_leaves_its_services_running(
    supervised: Supervised,
) -> None:
    running = supervised.service()
    assert supervised.keeper
    supervised.keeper.send(signal.SIGTERM)
    assert supervised.keeper.wait(5)
    assert running.alive
