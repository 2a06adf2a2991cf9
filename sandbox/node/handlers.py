"""Handlers of lifecycle hooks and probes, run against a running container."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import time

from sandbox.node.api import Json
from sandbox.node.records import Attempt

OUTPUT_BYTES = 500
_NS_GET_PARENT = 0xB702
"""ioctl_ns(2): a descriptor of the owning user namespace."""


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
    """Run a command in the container's namespaces with its environment."""
    record = attempt.run()
    nsenter = shutil.which("nsenter")
    if nsenter is None:
        return "nsenter not found; install util-linux"
    if not record or not record["pid"]:
        return "the container is not running"
    try:
        with contextlib.ExitStack() as opened:
            enter, kept = _nsenter_command(nsenter, record["pid"], opened)
            answer = subprocess.run(
                [*enter, "--", "/usr/bin/env", "-i", *_environment_of(attempt), *command],
                capture_output=True,
                timeout=timeout_s,
                stdin=subprocess.DEVNULL,
                pass_fds=kept,
            )
    except subprocess.TimeoutExpired:
        return f"not finished after {timeout_s:g} s"
    except OSError as error:
        return str(error)
    if answer.returncode == 0:
        return None
    output = (answer.stderr or answer.stdout)[-OUTPUT_BYTES:].decode(errors="replace").strip()
    return f"exit code {answer.returncode}: {output}"


def _nsenter_command(
    nsenter: str, pid: int, opened: contextlib.ExitStack
) -> tuple[list[str], tuple[int, ...]]:
    """Return (command that enters the container's namespaces, file descriptors that it needs).

    For non-root users bubblewrap creates a second user namespace inside the one that owns the others;
    without privileges those can be entered only through their owner.
    """

    def keep(fd: int) -> int:
        opened.callback(os.close, fd)
        return fd

    spaces = ["--target", str(pid), "--mount", "--uts", "--ipc", "--pid"]
    inner = keep(os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC))
    owner = keep(fcntl.ioctl(inner, _NS_GET_PARENT))
    if os.fstat(owner).st_ino == os.stat("/proc/self/ns/user").st_ino:
        return [nsenter, "--user", *spaces, "--preserve-credentials"], ()
    first = [nsenter, f"--user=/proc/self/fd/{owner}", *spaces, "--preserve-credentials", "--"]
    second = ["nsenter", f"--user=/proc/self/fd/{inner}", "--preserve-credentials"]
    return [*first, *second], (owner, inner)


def _environment_of(attempt: Attempt) -> list[str]:
    """Return the container's environment from its start options."""
    options = json.loads((attempt.path / "spec.json").read_bytes())["options"]
    start = options.index("--clearenv") + 1
    words = options[start:]
    return [f"{words[i + 1]}={words[i + 2]}" for i in range(0, len(words), 3)]


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
