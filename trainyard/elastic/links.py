"""Heartbeats between ranks: who has ended, who is silent, who is in a later view.

Each rank listens at one address. Who connects shows the token of the run, and then gets the number of the view
that this rank is in several times a second. A process that ends closes its connections at once; one that is
stopped sends nothing. A connection may also bring a newcomer its state (feed.py).
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import queue
import selectors
import socket
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

Address = tuple[str, int]

TOKEN_BYTES: Final = 32
WATCH: Final = b"w"
FEED: Final = b"f"
_HELLO_BYTES: Final = TOKEN_BYTES + 1
_BEAT: Final = struct.Struct("!q")
_BEAT_S: Final = 0.2
_CONNECTING: Final = (0, errno.EINPROGRESS, errno.EWOULDBLOCK)


@dataclass
class _Peer:
    address: Address
    connection: socket.socket | None = None
    heard: float = field(default_factory=time.monotonic)
    """When something came from it, or when it was first watched."""
    buffer: bytes = b""
    view: int = 0
    """The last that it reported; negative if it takes no part in it any more."""
    gone: bool = False


class Links(threading.Thread):
    """Sends heartbeats to whoever asks, and watches others; one thread of a rank."""

    def __init__(self, host: str, token: bytes, silent_after_s: float) -> None:
        super().__init__(name="elastic-links", daemon=True)
        self.feeds: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
        """Connections of members that bring the state."""
        self._token, self._silent_after_s = token, silent_after_s
        self._listener = socket.create_server((host, 0))
        self._listener.setblocking(False)
        self._wake, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._woken, selectors.EVENT_READ, self._drain)
        self._view, self._due = 0, 0.0
        self._watchers: set[socket.socket] = set()
        self._peers: dict[str, _Peer] = {}
        self._looked = time.monotonic()
        self.start()

    @property
    def address(self) -> Address:
        """Where this rank listens."""
        host, port = self._listener.getsockname()[:2]
        return host, port

    def announce(self, view: int) -> None:
        """Report from now on, and at once, that this rank is in the view; negative: that it has given it up."""
        self._view, self._due = view, 0.0
        self._wake.send(b"v")

    def watch(self, addresses: Mapping[str, Address]) -> None:
        self._peers = {name: self._known(name, address) for name, address in addresses.items()}
        self._wake.send(b"w")

    def _known(self, name: str, address: Address) -> _Peer:
        peer = self._peers.get(name)
        return peer if peer and peer.address == address else _Peer(address)

    def view_of(self, name: str) -> int:
        """Return the view that a rank reported last; 0 before that."""
        peer = self._peers.get(name)
        return peer.view if peer else 0

    def why_lost(self, name: str) -> str:
        """Return why a watched rank counts as lost; empty if it does not."""
        peer = self._peers.get(name)
        if peer is None:
            return ""
        if peer.gone:
            return "ended"
        silent_s = time.monotonic() - peer.heard
        # After a stop of this process itself, everybody would seem to be silent.
        if silent_s > self._silent_after_s and time.monotonic() - self._looked < 4 * _BEAT_S:
            return f"silent for {silent_s:.1f} s"
        return ""

    def run(self) -> None:
        while True:
            for key, _ in self._selector.select(_BEAT_S):
                key.data(key.fileobj)
            now = time.monotonic()
            if now - self._looked > 4 * _BEAT_S:
                for peer in self._peers.values():
                    peer.heard = now
            self._looked = now
            self._connect_new()
            if now >= self._due:
                self._due = now + _BEAT_S
                self._beat()

    def _drain(self, _: socket.socket) -> None:
        self._woken.recv(1024)

    def _beat(self) -> None:
        for watcher in list(self._watchers):
            try:
                watcher.send(_BEAT.pack(self._view))
            except BlockingIOError:
                continue  # it does not read
            except OSError:
                self._drop(watcher)

    def _connect_new(self) -> None:
        peers = self._peers
        wanted = {peer.connection for peer in peers.values()}
        for key in list(self._selector.get_map().values()):
            if key.data == self._hear and key.fileobj not in wanted:
                self._drop(key.fileobj)  # type: ignore[arg-type]
        for peer in peers.values():
            if peer.connection is None and not peer.gone:
                peer.connection = socket.socket()
                peer.connection.setblocking(False)
                code = peer.connection.connect_ex(peer.address)
                peer.gone = code not in _CONNECTING
                self._selector.register(peer.connection, selectors.EVENT_WRITE, self._greet)

    def _greet(self, connection: socket.socket) -> None:
        peer = self._peer(connection)
        if peer is None:
            self._drop(connection)
            return
        if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            peer.gone = True
            self._drop(connection)
            return
        connection.send(self._token + WATCH)
        self._selector.modify(connection, selectors.EVENT_READ, self._hear)

    def _hear(self, connection: socket.socket) -> None:
        peer = self._peer(connection)
        try:
            data = connection.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if peer is None or not data:
            if peer is not None:
                peer.gone = True
            self._drop(connection)
            return
        whole = peer.buffer + data
        end = len(whole) - len(whole) % _BEAT.size
        if end:
            peer.view = _BEAT.unpack(whole[end - _BEAT.size : end])[0]
        peer.buffer, peer.heard = whole[end:], time.monotonic()

    def _peer(self, connection: socket.socket) -> _Peer | None:
        return next((p for p in self._peers.values() if p.connection is connection), None)

    def _accept(self, _: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection, _address = self._listener.accept()
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ, self._welcome)

    def _welcome(self, connection: socket.socket) -> None:
        """Look what a connection is for: its first bytes come together, or it is closed."""
        try:
            hello = connection.recv(_HELLO_BYTES)
        except OSError:
            hello = b""
        if len(hello) != _HELLO_BYTES or not hmac.compare_digest(hello[:-1], self._token):
            self._drop(connection)
            return
        if hello[-1:] == FEED:
            self._selector.unregister(connection)
            connection.setblocking(True)
            self.feeds.put(connection)
            return
        self._watchers.add(connection)
        self._selector.modify(connection, selectors.EVENT_READ, self._farewell)

    def _farewell(self, watcher: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if watcher.recv(64):
                return
        self._drop(watcher)

    def _drop(self, connection: socket.socket) -> None:
        self._watchers.discard(connection)
        with contextlib.suppress(KeyError):
            self._selector.unregister(connection)
        connection.close()


def connect(address: Address, token: bytes, timeout_s: float) -> socket.socket:
    """Return a connection by which this rank brings another one its state. Raises OSError."""
    connection = socket.create_connection(address, timeout_s)
    connection.sendall(token + FEED)
    return connection
