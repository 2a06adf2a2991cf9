"""`kubectl port-forward` to a pod of a process node.

Pods share the host's network, so a port is looked up among the sockets of the pod's own processes: other programs
on the host, and other pods, are not reachable.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from sandbox.node.records import Attempt
from sandbox.node.spdy import Connection, Stream

PROTOCOL = "portforward.k8s.io"
"""Two streams per connection, with the headers `port` and `requestid`: `error`, then `data`."""

CONNECT_S = 10.0
_READ_BYTES = 65536
_LISTEN = "0A"


def serve(connection: socket.socket, attempts: Sequence[Attempt], ip: str) -> None:
    """Forward connections until the client leaves; blocks. `attempts`: running containers; `ip`: the pod's."""
    errors: dict[str, Stream] = {}

    def opened(stream: Stream) -> None:
        request, kind = stream.headers.get("requestid", ""), stream.headers.get("streamtype")
        if kind == "error":
            errors[request] = stream
        elif kind == "data" and request in errors:
            threading.Thread(
                target=_forward,
                args=(spdy, stream, errors.pop(request), attempts, ip),
                name="forward",
                daemon=True,
            ).start()
        else:
            stream.reset()

    spdy = Connection(connection, opened)
    spdy.serve()


def _forward(
    spdy: Connection, data: Stream, error: Stream, attempts: Sequence[Attempt], ip: str
) -> None:
    port = data.headers.get("port", "")
    try:
        with connect(int(port), attempts, ip) as target:
            back = threading.Thread(target=_copy_back, args=(target, data), daemon=True)
            back.start()
            with contextlib.suppress(OSError):
                while part := data.read():
                    target.sendall(part)
                target.shutdown(socket.SHUT_WR)
            if spdy.has_ended:
                with contextlib.suppress(OSError):
                    target.shutdown(socket.SHUT_RDWR)
            back.join()
    except (OSError, ValueError) as failure:
        with contextlib.suppress(OSError):
            error.write(f"port {port}: {failure}".encode())
    with contextlib.suppress(OSError):
        data.close()
        error.close()
    spdy.forget(data)
    spdy.forget(error)


def _copy_back(target: socket.socket, data: Stream) -> None:
    with contextlib.suppress(OSError):
        while part := target.recv(_READ_BYTES):
            data.write(part)
        data.close()


def connect(port: int, attempts: Sequence[Attempt], ip: str) -> socket.socket:
    """Connect to a port that a process of these containers serves. Raises OSError."""
    inodes = _sockets_of(attempts)
    for address, family in _listeners(port, inodes):
        host = ip if address in ("0.0.0.0", "::") and family == socket.AF_INET else address
        if address == "::":
            host, family = ip, socket.AF_INET
        target = socket.socket(family, socket.SOCK_STREAM)
        try:
            target.settimeout(CONNECT_S)
            target.connect((host, port))
            target.settimeout(None)
            return target
        except OSError:
            target.close()
    raise OSError("no process of the pod listens on it")


def _sockets_of(attempts: Sequence[Attempt]) -> set[str]:
    spaces = set()
    for attempt in attempts:
        run = attempt.run()
        if run and attempt.exit() is None:
            with contextlib.suppress(OSError):
                spaces.add(os.readlink(f"/proc/{run['pid']}/ns/pid"))
    found: set[str] = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.readlink(entry / "ns/pid") in spaces:
                for fd in os.listdir(entry / "fd"):
                    link = os.readlink(entry / "fd" / fd)
                    if link.startswith("socket:["):
                        found.add(link[8:-1])
    return found


def _listeners(port: int, inodes: set[str]) -> Iterator[tuple[str, socket.AddressFamily]]:
    """Yield the addresses at which sockets with these inodes listen on a port."""
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        try:
            lines = Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            host, _, number = fields[1].rpartition(":")
            if fields[3] == _LISTEN and int(number, 16) == port and fields[9] in inodes:
                yield _address(host, family), family


def _address(text: str, family: socket.AddressFamily) -> str:
    """Return an address of /proc/net/tcp: hexadecimal words in the machine's byte order."""
    words = [int(text[at : at + 8], 16).to_bytes(4, "little") for at in range(0, len(text), 8)]
    return socket.inet_ntop(family, b"".join(words))
