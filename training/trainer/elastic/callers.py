"""Connections to a listener whose callers have not said yet who they are."""

from __future__ import annotations

import functools
import selectors
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from training.trainer.elastic.views import TOKEN_BYTES

HELLO: Final = struct.Struct(f"!{TOKEN_BYTES}s16s16sIc")
"""Token, sender, receiver, view, kind."""
_HELLO_S: Final = 5.0
_CALLERS: Final = 64
"""A further caller displaces the one that has waited for longest."""


@dataclass
class _Caller:
    connection: socket.socket
    limit: float
    content: bytes = b""


class Callers:
    """Reads each caller's hello as it comes, in the listener's thread: heartbeats wait for none of them."""

    def __init__(self, admit: Callable[[socket.socket, bytes], None]) -> None:
        """`admit` takes a connection that does not block, and its hello."""
        self._admit = admit
        self._waiting: list[_Caller] = []

    def accept(self, server: socket.socket) -> None:
        """Take a connection."""
        try:
            connection, _ = server.accept()
        except OSError:
            return
        connection.setblocking(False)
        caller = _Caller(connection, time.monotonic() + _HELLO_S)
        self._waiting.append(caller)
        if len(self._waiting) > _CALLERS:
            self._drop(self._waiting[0])
        self._read(caller)  # in most cases it is there

    def register(self, selector: selectors.BaseSelector) -> None:
        """Register all callers, with what to call when they can be read."""
        for caller in self._waiting:
            read = functools.partial(self._read, caller)
            selector.register(caller.connection, selectors.EVENT_READ, read)

    def drop_late(self) -> None:
        """Close connections whose hello does not come."""
        now = time.monotonic()
        for caller in [caller for caller in self._waiting if caller.limit < now]:
            self._drop(caller)

    def close(self) -> None:
        """Close all connections."""
        while self._waiting:
            self._drop(self._waiting[0])

    def _read(self, caller: _Caller) -> None:
        if caller not in self._waiting:
            return
        try:
            part = caller.connection.recv(HELLO.size - len(caller.content))
        except BlockingIOError:
            return
        except OSError:
            part = b""
        caller.content += part
        if not part:
            self._drop(caller)
        elif len(caller.content) == HELLO.size:
            self._waiting.remove(caller)
            self._admit(caller.connection, caller.content)

    def _drop(self, caller: _Caller) -> None:
        self._waiting.remove(caller)
        caller.connection.close()
