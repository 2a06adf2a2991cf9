"""Messages between ranks and keepers: a JSON object with its length before it, then as many bytes as it says."""

from __future__ import annotations

import hmac
import json
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_LENGTH: Final = struct.Struct("!I")
_HEADER_LIMIT: Final = 64 << 20
_BUFFER: Final = 4 << 20
CONNECT_S: Final = 3.0
"""Limit for a keeper that does not accept or answer; its node is taken for lost."""


class Unreachable(OSError):
    """The other side is gone, or refused the token."""


def send(
    connection: socket.socket, header: Mapping[str, Any], content: memoryview | None = None
) -> None:
    """Send a message; `content` follows it. Raises OSError."""
    text = json.dumps(header).encode()
    connection.sendall(_LENGTH.pack(len(text)) + text)
    if content:
        connection.sendall(content)


def receive(connection: socket.socket) -> dict[str, Any]:
    """Return the next message without the bytes that follow it. Raises OSError, also at the end."""
    (size,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    if size > _HEADER_LIMIT:
        raise Unreachable(f"a message of {size} bytes")
    try:
        found = json.loads(_exactly(connection, size))
    except ValueError:
        raise Unreachable("a message is not JSON") from None
    if not isinstance(found, dict):
        raise Unreachable("a message is not an object")
    return found


def receive_into(connection: socket.socket, buffer: memoryview) -> None:
    """Fill a buffer with the bytes that follow a message. Raises OSError."""
    while buffer:
        got = connection.recv_into(buffer)
        if not got:
            raise Unreachable("the connection was closed")
        buffer = buffer[got:]


def dial(address: Mapping[str, Any], token: bytes, timeout_s: float = CONNECT_S) -> socket.socket:
    """Connect to a keeper. Raises OSError."""
    connection = socket.create_connection((address["host"], address["port"]), timeout=timeout_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
    connection.sendall(token)
    return connection


def is_known(connection: socket.socket, token: bytes) -> bool:
    """Return whether a caller shows the run's token."""
    connection.settimeout(CONNECT_S)
    try:
        return hmac.compare_digest(bytes(_exactly(connection, len(token))), token)
    except OSError:
        return False
    finally:
        connection.settimeout(None)


def address_file(run_dir: Path, node: int) -> Path:
    """Return the file in which the keeper of a node says where it listens."""
    return run_dir / "peer-memory" / f"node-{node}.json"


def _exactly(connection: socket.socket, size: int) -> bytearray:
    content = bytearray(size)
    receive_into(connection, memoryview(content))
    return content
