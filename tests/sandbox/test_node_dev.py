"""`kubectl exec` and `kubectl port-forward` on process nodes: in dev pods, and in no other pod."""

from __future__ import annotations

import os
import pty
import re
import signal
import socket
import subprocess
import termios
from collections.abc import Iterator

import pytest

from infra.domain import naming
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import Kit, processes_with, serving, until

pytestmark = pytest.mark.sandbox

DEV = {"labels": {naming.DEV: "true"}}
SERVER = (
    "import os, socket; s = socket.create_server(('127.0.0.1', 0)); "
    "print(s.getsockname()[1], flush=True)\n"
    "while True:\n  c, _ = s.accept()\n  c.sendall(c.recv(100).upper()); c.close()"
)


@pytest.fixture(scope="module")
def kit(cluster: Cluster) -> Iterator[Kit]:
    with serving(cluster, "dev", nodes=1) as served:
        main = {
            "command": ["python3", "-c", SERVER],
            "env": [{"name": "PLACE", "value": "dev pod"}],
        }
        security = {"runAsUser": 1000, "runAsGroup": 1000}
        served.run("mine", main=main, metadata=DEV, securityContext=security)
        served.run("run", "sleep 600")
        for name in ("mine", "run"):
            served.await_phase(name, "Running")
        yield served


def _exec(kit: Kit, *command: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    words = ["kubectl", "-n", kit.namespace, "exec", "-i", "mine", "--", *command]
    return subprocess.run(
        words, env=kit.cluster.env, input=stdin, capture_output=True, text=True, timeout=120
    )


def test_command_runs_in_the_pods_namespaces_without_privileges(kit: Kit) -> None:
    script = (
        "echo $PLACE; id -u; cat /proc/1/cmdline | tr '\\0' ' '; echo; grep -E 'Cap(Eff|Bnd)|NoNew'"
        " /proc/self/status; hostname; ls /root /home 2>&1 | head -1; exit 7"
    )
    done = _exec(kit, "sh", "-c", script)
    assert done.returncode == 7
    lines = done.stdout.splitlines()
    assert lines[:2] == ["dev pod", "1000"]
    assert "socket.create_server" in done.stdout
    assert "CapEff:\t0000000000000000" in lines and "CapBnd:\t0000000000000000" in lines
    assert "NoNewPrivs:\t1" in lines
    assert "mine" in lines
    assert "exit code 7" in done.stderr


def test_streams_are_separate_and_input_ends(kit: Kit) -> None:
    sent = "line\n" * 50_000
    done = _exec(kit, "sh", "-c", "cat; echo problem >&2", stdin=sent)
    assert (done.returncode, done.stdout, done.stderr) == (0, sent, "problem\n")


def test_unknown_command_ends_with_127(kit: Kit) -> None:
    done = _exec(kit, "no-such-program")
    assert done.returncode == 127 and "not found in the container" in done.stderr


def test_terminal_has_the_size_of_the_clients(kit: Kit) -> None:
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (33, 101))
    command = ["kubectl", "-n", kit.namespace, "exec", "-it", "mine", "--", "bash", "--norc"]
    client = subprocess.Popen(
        command,
        env=kit.cluster.env,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    seen = ""

    def until_seen(pattern: str) -> None:
        nonlocal seen
        while not re.search(pattern, seen):
            seen += os.read(master, 4096).decode(errors="replace")

    os.write(master, b"until test $(stty size | cut -c1-2) = 33; do :; done; stty size; tty\r")
    until_seen(r"33 101\r\n/dev/pts/\d")
    termios.tcsetwinsize(master, (44, 55))
    client.send_signal(signal.SIGWINCH)  # kubectl reads its size again
    os.write(master, b"until test $(stty size | cut -c1-2) = 44; do :; done; stty size\r")
    until_seen(r"44 55\r\n")
    os.write(master, b"exit 5\r")
    assert client.wait(120) == 5
    os.close(master)


def test_command_ends_when_its_client_leaves(kit: Kit) -> None:
    marker = "86399"
    command = ["kubectl", "-n", kit.namespace, "exec", "-i", "mine", "--", "sleep", marker]
    with subprocess.Popen(command, env=kit.cluster.env, stdin=subprocess.PIPE) as client:
        until(lambda: len(processes_with(marker)) > 1, "the command runs")
        client.kill()
    until(lambda: not processes_with(marker), "nothing is left of it")


def test_forwarded_port_reaches_the_pods_own_server_only(kit: Kit) -> None:
    port = kit.log(kit.pod("mine")).split()[0]
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        other = str(foreign.getsockname()[1])
        command = ["kubectl", "-n", kit.namespace, "port-forward", "mine", f":{port}", f":{other}"]
        with subprocess.Popen(
            command, env=kit.cluster.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as client:
            assert client.stdout is not None and client.stderr is not None
            local: dict[str, int] = {}
            while len(local) < 2:
                found = re.search(r"127.0.0.1:(\d+) -> (\d+)", client.stdout.readline())
                if found:
                    local[found[2]] = int(found[1])
            for word in (b"one", b"two"):
                with socket.create_connection(("127.0.0.1", local[port]), timeout=120) as asked:
                    asked.sendall(word)
                    assert asked.makefile("rb").read() == word.upper()
            with socket.create_connection(("127.0.0.1", local[other]), timeout=120) as asked:
                assert asked.recv(1) == b""
            assert "no process of the pod listens on it" in client.stderr.readline()
            client.terminate()


def test_other_pods_refuse_exec_and_port_forward(kit: Kit) -> None:
    for words in (("exec", "run", "--", "true"), ("port-forward", "run", ":80")):
        refused = kit.kubectl(*words)
        assert refused.returncode and "is not a dev pod" in refused.stderr, refused
    attached = kit.kubectl("attach", "mine")
    assert attached.returncode and "not served by a process node" in attached.stderr
