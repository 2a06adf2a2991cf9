"""Servers in a network namespace of their own: reached by the published port only, and what they may see."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import paths
from sandbox.ports import LOOPBACK, free_port
from tests.sandbox.isolated import private_tmp

DEADLINE_S = 60
INNER = 9443
SERVER = f"""
import socket, sys
server = socket.create_server(("", {INNER}))
while True:
    connection, _ = server.accept()
    word = connection.recv(100)
    if word == b"out":
        with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as outside:
            word = outside.recv(100)
    if word == b"tmp":
        import os
        word = " ".join(sorted(os.listdir("/tmp"))).encode()
    connection.sendall(b"got " + word)
    connection.close()
"""


@pytest.fixture
def outside() -> Iterator[socket.socket]:
    """A server of the host that the isolated one may reach."""
    with socket.create_server((LOOPBACK, 0)) as server:
        server.settimeout(DEADLINE_S)
        yield server


@pytest.fixture
def published(tmp_path: Path, outside: socket.socket) -> Iterator[int]:
    """The port of the isolated server."""
    (tmp_path / "file").write_text("x")
    port, reach = free_port(), outside.getsockname()[1]
    command = [
        *(sys.executable, "-m", "tests.sandbox.isolated"),
        *(f"--sockets={tmp_path / 'sockets'}", f"--bind={tmp_path / 'file'}=/tmp/bound"),
        *(f"--publish={port}={INNER}", f"--reach={reach}"),
        *("--", sys.executable, "-c", SERVER, str(reach)),
    ]
    environment = os.environ | {"PYTHONPATH": str(paths.PROJECT)}
    # A session of its own, as the supervisor gives it: all its processes end with the group.
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    yield port
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def ask(port: int, word: bytes) -> bytes:
    """What the server answers, as soon as it does."""
    limit = time.monotonic() + DEADLINE_S
    while True:
        try:
            with socket.create_connection((LOOPBACK, port), timeout=DEADLINE_S) as connection:
                connection.sendall(word)
                if answer := connection.recv(1000):
                    return answer
        except ConnectionError:
            pass
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_it_is_reached_by_its_published_port_and_reaches_what_it_may(
    published: int, outside: socket.socket
) -> None:
    assert ask(published, b"hello") == b"got hello"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, INNER), timeout=1.0)
    with socket.create_connection((LOOPBACK, published), timeout=DEADLINE_S) as connection:
        connection.sendall(b"out")
        inner, _ = outside.accept()
        inner.sendall(b"world")
        inner.close()
        assert connection.recv(100) == b"got world"


def test_its_tmp_has_what_was_bound_and_little_else(published: int) -> None:
    seen = ask(published, b"tmp").decode().split()
    assert "bound" in seen
    kept = [Path(one) for one in private_tmp([], []) if one.startswith("/tmp/")]
    allowed = {"bound", *(path.parts[2] for path in kept)}
    assert {name for name in seen if not name.startswith("pytest-")} <= {*allowed, "got"}


def test_a_bound_file_is_mounted_where_a_controller_expects_it(tmp_path: Path) -> None:
    words = private_tmp([f"{tmp_path}=/tmp/certs"], [Path("/usr/bin/env")])
    at = words.index("/tmp/certs")
    assert words[at - 2 : at] == ["--ro-bind", str(tmp_path)]
    assert "/usr/bin/env" not in words, "only what /tmp would hide is bound again"
