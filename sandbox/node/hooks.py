"""What is run in, or asked of, a running container: lifecycle hooks and probes."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import ssl
import subprocess
import time

from sandbox.node.api import Json
from sandbox.node.records import Attempt

OUTPUT_BYTES = 500


def run(action: Json, attempt: Attempt, pod_ip: str, timeout_s: float) -> str | None:
    """Does `action` (a LifecycleHandler or Probe handler); None if it worked, else what went wrong."""
    if "exec" in action:
        return execute(action["exec"].get("command") or [], attempt, timeout_s)
    try:
        if "httpGet" in action:
            return _http_get(action["httpGet"], pod_ip, timeout_s)
        if "tcpSocket" in action:
            return _tcp(action["tcpSocket"], pod_ip, timeout_s)
    except (OSError, ValueError, http.client.HTTPException) as error:  # also: no such port name
        return str(error)
    if "sleep" in action:
        time.sleep(min(float(action["sleep"]["seconds"]), timeout_s))
        return None
    return f"{', '.join(sorted(action)) or 'an empty handler'} is not supported on a process node"


def execute(command: list[str], attempt: Attempt, timeout_s: float) -> str | None:
    """Runs a command in the namespaces of the container, with the container's environment."""
    record = attempt.run()
    nsenter = shutil.which("nsenter")
    if nsenter is None:
        return "nsenter not found; install util-linux"
    if not record or not record["pid"]:
        return "the container is not running"
    enter = [
        nsenter,
        "--target",
        str(record["pid"]),
        "--user",
        "--mount",
        "--uts",
        "--ipc",
        "--pid",
    ]
    enter += ["--preserve-credentials", "--", "/usr/bin/env", "-i", *_variables(attempt)]
    try:
        answer = subprocess.run(
            [*enter, *command], capture_output=True, timeout=timeout_s, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return f"no end after {timeout_s:g} s"
    except OSError as error:
        return str(error)
    if answer.returncode == 0:
        return None
    output = (answer.stderr or answer.stdout)[-OUTPUT_BYTES:].decode(errors="replace").strip()
    return f"exit code {answer.returncode}: {output}"


def _variables(attempt: Attempt) -> list[str]:
    """The container's environment, from the options it was started with."""
    options = json.loads((attempt.path / "spec.json").read_bytes())["options"]
    start = options.index("--clearenv") + 1
    words = options[start:]
    return [f"{words[i + 1]}={words[i + 2]}" for i in range(0, len(words), 3)]


def _http_get(action: Json, pod_ip: str, timeout_s: float) -> str | None:
    host, port = action.get("host") or pod_ip, int(action["port"])
    connection: http.client.HTTPConnection
    if action.get("scheme") == "HTTPS":
        unverified = (
            ssl.create_default_context()
        )  # as the kubelet: a probe checks life, not identity
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
