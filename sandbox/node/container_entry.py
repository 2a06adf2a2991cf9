"""Commands in running containers: `kubectl exec`, probes and hooks start them in one way, by enter.py."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import signal
import socket
import ssl
import subprocess
import sys
import time
from dataclasses import dataclass

from sandbox.node import enter
from sandbox.node.api import Json
from sandbox.node.records import Attempt, load_json

_READ_BYTES = 65536
_CLOSED = b""


class EntryError(Exception):
    """The command cannot be started."""


@dataclass(frozen=True)
class Entered:
    """A command in a container. `control`: the socket on which the helper answers."""

    process: subprocess.Popen[bytes]
    control: socket.socket

    def has_answered(self, timeout_s: float) -> bool:
        return bool(select.select([self.control], [], [], timeout_s)[0])

    def exit_code(self) -> int:
        """Return the command's exit code; blocks until it ends. Raises EntryError if it was not started."""
        line = self.control.makefile("rb").readline()
        try:
            return int(json.loads(line)["exit"])
        except (ValueError, KeyError):
            raise EntryError(error_of(line)) from None


def start_command(
    attempt: Attempt,
    command: list[str],
    *,
    tty: bool = False,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
    stderr: int = subprocess.DEVNULL,
) -> Entered:
    """Start a command with the container's user, environment and working directory, without capabilities.

    Streams are file descriptors, or subprocess.DEVNULL; with `tty` the helper sends the terminal's descriptor
    first. Raises EntryError or OSError.
    """
    run = attempt.run()
    if not run or not run["pid"] or attempt.exit():
        raise EntryError("the container is not running")
    if not command:
        raise EntryError("no command was given")
    env, folder = _surroundings(attempt)
    if tty:
        env.setdefault("TERM", "xterm")
    process_of = {"pid": run["pid"], "start": run["start"]}
    request = {"command": command, "env": env, "cwd": folder, "tty": tty} | process_of
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-E", enter.__file__, str(theirs.fileno())],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            cwd="/",
            env={"LANG": "C.UTF-8"},
        )
    with contextlib.suppress(BrokenPipeError):  # the helper was killed, which its answer will show
        ours.sendall(json.dumps(request).encode() + b"\n")
    return Entered(process, ours)


def run_command(
    attempt: Attempt, command: list[str], timeout_s: float, output_bytes: int
) -> tuple[int, str]:
    """Run a command to its end; return its exit code and the end of its output (stdout and stderr).

    Raises TimeoutError after `timeout_s` seconds, when the command has been killed; EntryError; OSError.
    """
    deadline = time.monotonic() + timeout_s
    reader, writer = os.pipe()
    try:
        entered = start_command(attempt, command, stdout=writer, stderr=writer)
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    tail = b""
    watched: list[int | socket.socket] = [reader, entered.control]
    try:
        with entered.control:
            while True:
                left = max(0.0, deadline - time.monotonic())
                ready = select.select(watched, [], [], left)[0]
                if reader in ready:
                    data = os.read(reader, _READ_BYTES)
                    tail = (tail + data)[-output_bytes:]
                    if data == _CLOSED:
                        watched.remove(reader)
                elif entered.control in ready:
                    return entered.exit_code(), tail.decode(errors="replace").strip()
                if time.monotonic() >= deadline:
                    raise TimeoutError(f"not finished after {timeout_s:g} s")
    finally:
        os.close(reader)
        if entered.process.poll() is None:
            entered.process.send_signal(signal.SIGTERM)  # the helper kills the command
        entered.process.wait()


def error_of(answer: bytes) -> str:
    try:
        return str(json.loads(answer)["error"])
    except (ValueError, KeyError):
        return "the command's process was killed"


def _surroundings(attempt: Attempt) -> tuple[dict[str, str], str]:
    """Return environment and working directory of the container. See launch.py for the options' order."""
    options = (load_json(attempt.path / "spec.json") or {}).get("options") or []
    if "--clearenv" not in options:
        raise EntryError("the container has ended")
    at = options.index("--clearenv")
    words = options[at + 1 :]
    return dict(zip(words[1::3], words[2::3], strict=True)), options[at - 1]


OUTPUT_BYTES = 500


def run_handler(action: Json, attempt: Attempt, pod_ip: str, timeout_s: float) -> str | None:
    """Run a LifecycleHandler or probe handler; return None on success, else the error."""
    if "exec" in action:
        return run_exec(action["exec"].get("command") or [], attempt, timeout_s)
    try:
        if "httpGet" in action:
            return _http_get(action["httpGet"], pod_ip, timeout_s)
        if "tcpSocket" in action:
            return _tcp(action["tcpSocket"], pod_ip, timeout_s)
    except (OSError, ValueError, http.client.HTTPException) as error:  # also an unknown port name
        return str(error)
    if "sleep" in action:
        time.sleep(min(float(action["sleep"]["seconds"]), timeout_s))
        return None
    return f"{', '.join(sorted(action)) or 'an empty handler'}: not supported on a process node"


def run_exec(command: list[str], attempt: Attempt, timeout_s: float) -> str | None:
    """Run a command in the container, as `kubectl exec` does; return None on success, else the error."""
    try:
        code, output = run_command(attempt, command, timeout_s, OUTPUT_BYTES)
    except (EntryError, OSError) as error:  # a TimeoutError is an OSError
        return str(error)
    return f"exit code {code}: {output}" if code else None


def _http_get(action: Json, pod_ip: str, timeout_s: float) -> str | None:
    host, port = action.get("host") or pod_ip, int(action["port"])
    connection: http.client.HTTPConnection
    if action.get("scheme") == "HTTPS":
        # As the kubelet: probes do not verify certificates.
        unverified = ssl.create_default_context()
        unverified.check_hostname = False
        unverified.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=unverified)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    headers = {h["name"]: h["value"] for h in action.get("httpHeaders") or []}
    try:
        connection.request("GET", action.get("path") or "/", headers=headers)
        status = connection.getresponse().status
    finally:
        connection.close()
    return None if 200 <= status < 400 else f"HTTP status {status}"


def _tcp(action: Json, pod_ip: str, timeout_s: float) -> str | None:
    address = (action.get("host") or pod_ip, int(action["port"]))
    socket.create_connection(address, timeout_s).close()
    return None
