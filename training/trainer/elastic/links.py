"""Connections between the members of a view, and who of them is lost.

Each process has one listener for its life, served by a thread. A view has its own connections: a data link per
pair, used by the training thread alone, and a control link from each member to each other one, on which the
listener's thread sends heartbeats. A closed link or `silent_after_s` without a heartbeat means that the member is
lost. So nothing of an aborted exchange can reach the next view.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import selectors
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from typing import Final

from training.trainer.elastic.views import TOKEN_BYTES, Member, View, ViewLog

_HELLO: Final = struct.Struct(f"!{TOKEN_BYTES}s16s16sIc")
"""Token, sender, receiver, view, kind."""
_DATA, _CONTROL, JOIN = b"d", b"c", b"j"
_HEARTBEAT_S: Final = 0.2
_HELLO_S: Final = 0.5
"""Limit for a caller that does not say who it is: heartbeats wait so long."""
_BUFFER: Final = 4 << 20


class MemberLost(Exception):
    """Members of the view are gone, or the view has a successor."""

    def __init__(self, lost: set[str]) -> None:
        super().__init__(f"lost {', '.join(sorted(lost)) or 'the view'}")
        self.lost = lost


def new_id() -> str:
    """Return an id for a new member."""
    return secrets.token_hex(8)


@dataclass
class _Control:
    peer: str
    view: int
    connection: socket.socket


@dataclass
class Listener:
    """The listener of this process and the thread that serves it."""

    log: ViewLog
    host: str
    silent_after_s: float
    member: Member = field(init=False)
    joins: list[tuple[socket.socket, str]] = field(default_factory=list)
    """Callers that want to join, with their ids; the leader takes them."""

    def __post_init__(self) -> None:
        self._token = self.log.token()
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        self._socket = socket.create_server((self.host, 0), family=family, backlog=64)
        self._socket.setblocking(False)
        self.renew_id()
        self._wake, self._waker = socket.socketpair()
        for end in (self._wake, self._waker):
            end.setblocking(False)
        self._changed = threading.Condition()
        self._view = View(number=0, members=(), formed=False, reason="")
        self._controls: list[_Control] = []
        self._heard: dict[str, float] = {}
        self._lost: set[str] = set()
        self._data: dict[tuple[int, str], socket.socket] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="groups", daemon=True)
        self._thread.start()

    def renew_id(self) -> None:
        """Take a new id: whoever was excluded joins as another member."""
        self.member = Member(new_id(), self.host, self._socket.getsockname()[1])

    def close(self) -> None:
        """Close every connection."""
        self._closed = True
        self._thread.join(5.0)
        with self._changed:
            for connection in [
                *(control.connection for control in self._controls),
                *self._data.values(),
                *(join for join, _ in self.joins),
                self._socket,
            ]:
                connection.close()

    def dial(self, member: Member, view: int, kind: bytes, timeout_s: float) -> socket.socket:
        """Connect to a member. Raises OSError."""
        connection = socket.create_connection((member.host, member.port), timeout=timeout_s)
        connection.sendall(
            _HELLO.pack(self._token, self.member.id.encode(), member.id.encode(), view, kind)
        )
        return _tuned(connection)

    def connect(self, view: View, timeout_s: float) -> dict[str, socket.socket]:
        """Connect with all members of a view, whose heartbeats count from now on; return the data links.

        Raises MemberLost.
        """
        me = view.position(self.member.id)
        assert me is not None
        self._adopt(view)
        links: dict[str, socket.socket] = {}
        try:
            for position, other in enumerate(view.members):
                if position != me:
                    self._call(other, view, links, data=position < me)
            limit = time.monotonic() + timeout_s
            for other in view.members[me + 1 :]:
                links[other.id] = self._await_data(view.number, other.id, limit)
        except BaseException:
            for link in links.values():
                link.close()
            raise
        return links

    def lost(self) -> set[str]:
        """Return the members of the view that are lost."""
        with self._changed:
            return set(self._lost)

    def report_lost(self, member_id: str) -> None:
        """Count a member as lost, because its data link says so."""
        with self._changed:
            self._lose(member_id)

    def superseded(self) -> bool:
        """Return whether somebody has called for a later view, or this one has a successor."""
        return self.log.exists(self._view.number + 1)

    @property
    def wake(self) -> socket.socket:
        """Readable when members were lost or a later view exists."""
        return self._wake

    def _adopt(self, view: View) -> None:
        with self._changed:
            self._view = view
            self._lost.clear()
            now = time.monotonic()
            self._heard = {member.id: now for member in view.members}
            kept = []
            for control in self._controls:
                if control.view < view.number:
                    control.connection.close()
                else:
                    kept.append(control)
            self._controls = kept
            for key in [key for key in self._data if key[0] < view.number]:
                self._data.pop(key).close()
        with contextlib.suppress(BlockingIOError):
            while self._wake.recv(4096):
                pass

    def _call(
        self, other: Member, view: View, links: dict[str, socket.socket], *, data: bool
    ) -> None:
        try:
            control = self.dial(other, view.number, _CONTROL, self.silent_after_s)
            if data:
                links[other.id] = self.dial(other, view.number, _DATA, self.silent_after_s)
        except OSError:
            self.report_lost(other.id)
            raise MemberLost(self.lost()) from None
        control.setblocking(False)
        with self._changed:
            self._controls.append(_Control(other.id, view.number, control))

    def _await_data(self, number: int, member_id: str, limit: float) -> socket.socket:
        with self._changed:
            while (number, member_id) not in self._data:
                if self._lost or self.superseded():
                    raise MemberLost(set(self._lost))
                if time.monotonic() > limit:
                    self._lose(member_id)
                self._changed.wait(0.05)
            return self._data.pop((number, member_id))

    def _lose(self, member_id: str) -> None:
        """The caller holds the lock."""
        if member_id in {member.id for member in self._view.members} - {self.member.id}:
            self._lost.add(member_id)
            self._notify()

    def _notify(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._waker.send(b"x")
        self._changed.notify_all()

    def _serve(self) -> None:
        beaten = leased = 0.0
        while not self._closed:
            self._receive(_HEARTBEAT_S / 4)
            now = time.monotonic()
            if now - beaten >= _HEARTBEAT_S:
                beaten = now
                self._beat(now)
            if now - leased >= 1.0 and self._view.position(self.member.id) == 0:
                leased = now
                with contextlib.suppress(OSError):  # the fence of checkpoints is what protects
                    self.log.renew_lease()

    def _receive(self, timeout_s: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            with self._changed:
                for control in self._controls:
                    if control.connection.fileno() >= 0:
                        selector.register(control.connection, selectors.EVENT_READ, control)
            for key, _ in selector.select(timeout_s):
                if key.data is None:
                    self._accept()
                else:
                    self._hear(key.data)

    def _hear(self, control: _Control) -> None:
        try:
            heard = control.connection.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        with self._changed:
            if heard:
                self._heard[control.peer] = time.monotonic()
            elif control in self._controls:
                self._controls.remove(control)
                control.connection.close()
                if control.view == self._view.number:
                    self._lose(control.peer)

    def _beat(self, now: float) -> None:
        with self._changed:
            for control in self._controls:
                with contextlib.suppress(OSError):
                    control.connection.send(b"h")
            for member in self._view.members:
                silence = now - self._heard.get(member.id, now)
                if member.id != self.member.id and silence > self.silent_after_s:
                    self._lose(member.id)

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return
        connection.settimeout(_HELLO_S)
        try:
            content = b""
            while len(content) < _HELLO.size:
                if not (part := connection.recv(_HELLO.size - len(content))):
                    raise ConnectionError("closed")
                content += part
        except OSError:
            connection.close()
            return
        token, sender, receiver, view, kind = _HELLO.unpack(content)
        mine = hmac.compare_digest(token, self._token) and receiver.decode() == self.member.id
        if not mine:
            connection.close()
            return
        self._admit(_tuned(connection), sender.decode(), view, kind)

    def _admit(self, connection: socket.socket, peer: str, view: int, kind: bytes) -> None:
        with self._changed:
            if kind == JOIN:
                self.joins.append((connection, peer))
            elif view < self._view.number:
                connection.close()
            elif kind == _DATA:
                self._data[view, peer] = connection
            else:
                connection.setblocking(False)
                self._controls.append(_Control(peer, view, connection))
                self._heard[peer] = time.monotonic()
            self._notify() if view > self._view.number else self._changed.notify_all()


def _tuned(connection: socket.socket) -> socket.socket:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
    return connection
