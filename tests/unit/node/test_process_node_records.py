"""Records on disk and the shim that writes them: real processes, no cluster."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
from pathlib import Path

import pytest

from sandbox import paths
from sandbox.node import runtime, shim
from sandbox.node.context import Addresses
from sandbox.node.logs import LogOptions, read_log
from sandbox.node.records import Attempt, pod_folder, pod_folders
from sandbox.process import Process

POD = {"metadata": {"namespace": "n", "name": "p", "uid": "u-1"}}


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    place = pod_folder(paths.State(tmp_path), POD)
    found = place.attempt("main", 0)
    found.path.mkdir(parents=True)
    return found


@pytest.fixture
def fake_bwrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands for bubblewrap: reports its own pid as the container's, then is the command."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "bwrap"
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, os, sys\n"
        "os.read(3, 65536)\n"
        "os.write(4, json.dumps({'child-pid': os.getpid()}).encode())\n"
        "os.close(3); os.close(4)\n"
        "command = sys.argv[sys.argv.index('--') + 1:]\n"
        "os.execve(command[0], command, {})\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def log_of(attempt: Attempt) -> str:
    return b"".join(read_log(attempt.log, LogOptions(), lambda: True)).decode()


def _end(process: object, seconds: float = 20.0) -> None:
    fd = os.pidfd_open(process.pid)  # type: ignore[attr-defined]
    assert select.select([fd], [], [], seconds)[0], "the shim has ended"
    os.close(fd)
    process.wait()  # type: ignore[attr-defined]


@pytest.mark.usefixtures("fake_bwrap")
def test_a_shim_that_is_killed_counts_as_exit_137(attempt: Attempt) -> None:
    process = runtime.start_container(attempt, runtime.Launch(command=["/bin/sleep", "600"]))
    run = attempt.run(wait_s=10)
    assert run is not None
    process.kill()
    _end(process)
    exit_ = attempt.exit()
    assert exit_ is not None and exit_["exit_code"] == 137 and exit_["lost"]
    assert attempt.exit() == exit_, "what was decided once stays"
    shutil.rmtree(attempt.path)
    gone = attempt.exit()
    assert gone is not None and gone["lost"], "a probe may still ask after the pod's removal"
    Process(run["pid"], run["start"]).send(signal.SIGKILL)  # bubblewrap would have done it


SERVER = """
import socket
for family, host in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"), (socket.AF_INET, "127.0.0.1")):
    server = socket.socket(family)
    server.bind((host, 0))
    server.listen()
    print(host, server.getsockname()[0])
    for near in {"0.0.0.0": ("0.0.0.0", "127.0.0.1"), "::": ("::", "::1")}.get(host, ()):
        socket.create_connection((near, server.getsockname()[1])).close()
try:
    socket.create_connection(("127.0.0.1", 1))
except ConnectionRefusedError:
    print("refused")
socket.socket(socket.AF_UNIX).bind("\\0" + __import__("uuid").uuid4().hex)
"""


@pytest.mark.usefixtures("fake_bwrap")
def test_servers_on_every_interface_get_the_address_of_their_pod(attempt: Attempt) -> None:
    process = runtime.start_container(
        attempt, runtime.Launch(command=[sys.executable, "-c", SERVER], listen_at="127.1.254.253")
    )
    _end(process)
    exit_ = attempt.exit()
    assert exit_ is not None and exit_["exit_code"] == 0, exit_
    assert log_of(attempt).splitlines() == [
        "0.0.0.0 127.1.254.253",
        ":: ::ffff:127.1.254.253",
        "127.0.0.1 127.0.0.1",
        "refused",
    ]


def test_a_pid_that_was_given_to_another_process_is_not_touched() -> None:
    start = shim.start_time(os.getpid())
    fd = Process(os.getpid(), start).open()
    assert fd is not None
    os.close(fd)
    assert Process(os.getpid(), start + 1).open() is None
    assert not Process(os.getpid(), start + 1).send(signal.SIGKILL)


def test_incompletely_started_attempt_is_ignored(attempt: Attempt, tmp_path: Path) -> None:
    place = pod_folder(paths.State(tmp_path), POD)
    assert place.attempts("main") == []
    (attempt.path / "spec.json").write_text("{}")
    assert place.attempts("main") == []
    (attempt.path / "run.json").write_text("{}")
    assert [found.number for found in place.attempts("main")] == [0]
    assert [found.uid for found in pod_folders(paths.State(tmp_path))] == ["u-1"]


def test_the_record_of_a_pod_is_updated_by_entry_and_survives_damage(tmp_path: Path) -> None:
    place = pod_folder(paths.State(tmp_path), POD)
    place.update(ip="127.1.0.1")
    place.update(node="a")
    assert place.load() == {"ip": "127.1.0.1", "node": "a"}
    (place.path / "pod.json").write_text("{")
    assert place.load() == {}


def test_each_live_pod_has_an_address_of_its_own(tmp_path: Path) -> None:
    addresses = Addresses(tmp_path)
    taken = [addresses.take(str(number)) for number in range(600)]
    assert len(set(taken)) == 600
    assert all(address.startswith("127.1.") for address in taken)
    assert not addresses.claim(taken[0], "other") and addresses.claim(taken[0], "0")
    addresses.release("0")
    assert addresses.claim(taken[0], "other")
