"""Handlers of lifecycle hooks and probes, run against a running container."""

from __future__ import annotations

import http.client
import socket
import ssl
import time

from sandbox.node import container_entry
from sandbox.node.api import Json
from sandbox.node.records import Attempt

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
        code, output = container_entry.run_command(attempt, command, timeout_s, OUTPUT_BYTES)
    except (container_entry.EntryError, OSError) as error:  # a TimeoutError is an OSError
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
