"""The embedded cluster: started once, restarted when something dies, on loopback only, ended exactly."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from sandbox import cluster as embedded
from sandbox import paths, ports, process
from sandbox.process import Process
from tests import waiting

if TYPE_CHECKING:
    from tests.sandbox.conftest import Cluster

pytestmark = [pytest.mark.sandbox, pytest.mark.long(33)]
DEADLINE_S = 180.0


def _until(holds: Callable[[], bool], what: str) -> None:
    waiting.until(holds, what, DEADLINE_S, every_s=0.1)


def _pids(cluster: Cluster) -> dict[str, Process]:
    found = {path.stem: process.load(path) for path in cluster.state.pids.glob("*.json")}
    return {name: running for name, running in found.items() if running}


def _healthy() -> bool:
    return all(row.state == "running" for row in embedded.health())


def _up(cluster: Cluster) -> None:
    embedded.up(cluster.settings.tools, lambda _: None)


def test_second_start_keeps_every_process(cluster: Cluster) -> None:
    before = _pids(cluster)
    _up(cluster)
    assert _pids(cluster) == before


@pytest.mark.parametrize("name", ["apiserver", "etcd", "kwok", "node"])
def test_killed_service_is_restarted_without_data_loss(cluster: Cluster, name: str) -> None:
    cluster.kubectl("create", "configmap", f"kept-{name}", "-n", "default")
    before = _pids(cluster)[name]
    before.send(signal.SIGKILL)
    _until(lambda: _pids(cluster)[name] != before and _healthy(), f"{name} is back")
    assert f"kept-{name}" in cluster.kubectl("get", "configmap", "-n", "default", "-o", "name")


def test_start_recovers_after_all_processes_were_killed(cluster: Cluster) -> None:
    cluster.kubectl("create", "configmap", "kept-through-it-all", "-n", "default")
    before = _pids(cluster)
    for running in sorted(before.values(), key=lambda p: p != before["supervisor"]):
        running.send(signal.SIGKILL)
    _up(cluster)
    assert _healthy()
    cluster.kubectl("get", "configmap", "kept-through-it-all", "-n", "default")


def test_every_server_listens_on_loopback_only(cluster: Cluster) -> None:
    _until(_healthy, "the cluster is healthy")
    listed = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("ss is not installed")
    ours = {str(running.pid) for running in _pids(cluster).values()}
    addresses = [
        line.split()[3]
        for line in listed.stdout.splitlines()
        if ours & set(re.findall(r"pid=(\d+)", line))
    ]
    assert addresses
    assert all(address.startswith("127.") for address in addresses), addresses


def test_client_without_a_certificate_is_rejected(cluster: Cluster) -> None:
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    url = config["clusters"][0]["cluster"]["server"] + "/api/v1/namespaces"
    code = f"import ssl,urllib.request as u;u.urlopen({url!r},context=ssl._create_unverified_context())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "401" in done.stderr


@pytest.mark.long(14)
def test_two_sandboxes_coexist_and_down_stops_only_its_own(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _pids(cluster)
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "second"))
    embedded.up(cluster.settings.tools, lambda _: None)
    second = paths.state()
    started = [p for f in second.pids.glob("*.json") if (p := process.load(f))]
    assert all(running.alive for running in started)
    assert embedded.down(lambda _: None) == len(started)
    assert not any(running.alive for running in started)
    assert not _mentioning(str(second.home))
    assert all(running.alive for running in first.values())


@pytest.mark.long(19)
def test_a_service_whose_port_was_taken_before_it_listened_starts_on_another(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "late"))
    choose, lines = ports.choose_ports, list[str]()
    victims = ["etcd-peer", "kwok"]
    with contextlib.ExitStack() as others:

        def choose_and_lose(file: Path, in_use: frozenset[str]) -> tuple[dict[str, int], list[str]]:
            found, moved = choose(file, in_use)
            if victims:
                name = victims.pop(0)
                other = others.enter_context(socket.socket())
                other.bind((ports.LOOPBACK, found[name]))
                other.listen()
                lines.append(f"port {found[name]} of {name} is taken by another program")
            return found, moved

        monkeypatch.setattr(ports, "choose_ports", choose_and_lose)
        reported: list[str] = []
        try:
            embedded.up(cluster.settings.tools, reported.append)
            assert _healthy()
        finally:
            embedded.down(lambda _: None)
    for line in lines:
        assert any(text.startswith(f"{line}; moved to ") for text in reported), line


def _mentioning(text: str) -> list[str]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and folder.name != str(os.getpid()):
            try:
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if text in command:
                found.append(command)
    return found


def test_second_command_waits_for_the_first(cluster: Cluster) -> None:
    code = (
        "import sys; from sandbox.lock import sandbox_lock\n"
        "with sandbox_lock('first', print):\n"
        "    print('held', flush=True); sys.stdin.readline()\n"
    )
    env = os.environ | {"PYTHONPATH": str(paths.PROJECT)}
    holder = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    )
    assert holder.stdout and holder.stdin
    assert holder.stdout.readline().strip() == "held"
    other = subprocess.Popen(
        [sys.executable, "-m", "sandbox", "up", "--cluster-only"],
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    )
    assert other.stdout
    first_line = other.stdout.readline()
    assert first_line == (
        f"`first` (pid {holder.pid}) is working on this sandbox; waiting for it to finish\n"
    )
    holder.stdin.write("\n")
    holder.stdin.flush()
    assert other.wait(DEADLINE_S) == 0
    other.stdout.close()
    holder.stdin.close()
    holder.stdout.close()
    assert holder.wait(10) == 0
