"""Connections between the members of a view, and who of them is lost.

Each process has one listener for its life, served by a thread. Rank R of a group talks with rank R of the other
groups only. A view has its own connections: a data link per pair, used by the training thread alone, and a control
link from each member to each other one, on which the listener's thread sends heartbeats. A closed link or
`silent_after_s` without a heartbeat means that the member is lost. So nothing of an aborted exchange can reach the
next view.
"""

from __future__ import annotations

import contextlib
import functools
import hmac
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from training.trainer.elastic.callers import HELLO, Callers
from training.trainer.elastic.lease import LeaseHolder
from training.trainer.elastic.views import Member, View, ViewLog

_DATA, _CONTROL, JOIN = b"d", b"c", b"j"
HEARTBEAT_S: Final = 0.2
PAUSE_S: Final = 0.5
"""A thread that beats less often than that was stopped itself: the silence of others meanwhile does not count."""
_BUFFER: Final = 4 << 20
GONE, SILENT, LATE, HUNG = "gone", "silent", "late", "hung"
"""Why a member is lost: a link is closed; no heartbeats; nothing delivered in time; named for a hang."""


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
    rank: int = 0
    """Of this process in its group."""
    member: Member = field(init=False)
    """This group, as the others know it."""
    joins: list[tuple[socket.socket, str]] = field(default_factory=list)
    """Callers that want to join, with their ids; the leader takes them."""

    def __post_init__(self) -> None:
        self._token = self.log.token()
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        self._socket = socket.create_server((self.host, 0), family=family, backlog=64)
        self._socket.setblocking(False)
        self.member = Member("", (self.address,))
        self._wake, self._waker = socket.socketpair()
        for end in (self._wake, self._waker):
            end.setblocking(False)
        self._changed = threading.Condition()
        self._view = View(number=0, members=(), formed=False, reason="")
        self._callers = Callers(self._greet)
        self._controls: list[_Control] = []
        self._heard: dict[str, float] = {}
        self._lost: dict[str, str] = {}
        self._data: dict[tuple[int, str], socket.socket] = {}
        self._closed = False
        self._lease = None if self.rank else LeaseHolder(self.log, self._led_view)
        self._thread = threading.Thread(target=self._serve, name="groups", daemon=True)
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        """Where this process listens."""
        return self.host, self._socket.getsockname()[1]

    def close(self) -> None:
        """Close every connection."""
        self._closed = True
        if self._lease:
            self._lease.close()
        self._thread.join(5.0)
        self._callers.close()
        with self._changed:
            for connection in [
                *(control.connection for control in self._controls),
                *self._data.values(),
                *(join for join, _ in self.joins),
                self._socket,
            ]:
                connection.close()

    def dial(self, member: Member, view: int, kind: bytes, timeout_s: float) -> socket.socket:
        """Connect to a member's rank of the same number. Raises OSError."""
        connection = socket.create_connection(member.addresses[self.rank], timeout=timeout_s)
        connection.sendall(
            HELLO.pack(self._token, self.member.id.encode(), member.id.encode(), view, kind)
        )
        return tuned(connection)

    def connect(
        self, view: View, timeout_s: float, check: Callable[[], None]
    ) -> dict[str, socket.socket]:
        """Connect with all members of a view, whose heartbeats count from now on; return the data links.

        `check` is called while it waits, and may raise MemberLost. Raises MemberLost.
        """
        me = view.position(self.member.id)
        assert me is not None
        self.adopt(view)
        links: dict[str, socket.socket] = {}
        try:
            for position, other in enumerate(view.members):
                if position != me:
                    self._call(other, view, links, data=position < me)
            limit = time.monotonic() + timeout_s
            for other in view.members[me + 1 :]:
                links[other.id] = self._await_data(view.number, other.id, limit, check)
        except BaseException:
            for link in links.values():
                link.close()
            raise
        return links

    def lost(self) -> set[str]:
        """Return the members of the view that are lost."""
        with self._changed:
            return set(self._lost)

    def silent(self) -> list[str]:
        """Return the members of the view that are lost because they were silent."""
        with self._changed:
            return [member for member, cause in self._lost.items() if cause == SILENT]

    def report_lost(self, member_id: str, cause: str) -> None:
        """Count a member as lost, by what other threads than the listener's know."""
        with self._changed:
            self._lose(member_id, cause)

    def superseded(self) -> bool:
        """Return whether the view has a successor; reads the shared file system."""
        return self.log.exists(self._view.number + 1)

    def taken_over(self) -> bool:
        """Return whether the view that this process leads has a successor, from what it knows: for every step.

        No link shows the loss of a view to its only member: it looks itself if its thread has not looked lately.
        """
        view, lease = self._view, self._lease
        if lease is None or self._led_view() is None:
            return False
        if len(view.members) == 1 and lease.is_late():
            return self.superseded()
        return lease.is_superseded(view.number)

    @property
    def wake(self) -> socket.socket:
        """Readable when members were lost or a later view exists."""
        return self._wake

    def clear_wake(self) -> None:
        """Forget what woke the reader of `wake`."""
        with contextlib.suppress(BlockingIOError):
            while self._wake.recv(4096):
                pass

    def adopt(self, view: View) -> None:
        """Be in this view from now on; its leader holds the lease."""
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
        self.clear_wake()
        if self._lease:
            self._lease.renew()

    def _led_view(self) -> int | None:
        view = self._view
        return view.number if view.position(self.member.id) == 0 else None

    def _call(
        self, other: Member, view: View, links: dict[str, socket.socket], *, data: bool
    ) -> None:
        try:
            control = self.dial(other, view.number, _CONTROL, self.silent_after_s)
            if data:
                links[other.id] = self.dial(other, view.number, _DATA, self.silent_after_s)
        except OSError:
            self.report_lost(other.id, GONE)
            raise MemberLost(self.lost()) from None
        control.setblocking(False)
        with self._changed:
            self._controls.append(_Control(other.id, view.number, control))

    def _await_data(
        self, number: int, member_id: str, limit: float, check: Callable[[], None]
    ) -> socket.socket:
        while True:
            with self._changed:
                if found := self._data.pop((number, member_id), None):
                    return found
            check()
            # Without the lock: heartbeats need it, and must not wait for the file system.
            if self.lost() or self.superseded():
                raise MemberLost(self.lost())
            with self._changed:
                if time.monotonic() > limit:
                    self._lose(member_id, LATE)
                if (number, member_id) not in self._data and not self._lost:
                    self._changed.wait(0.05)

    def _lose(self, member_id: str, cause: str) -> None:
        """The caller holds the lock."""
        if member_id in {member.id for member in self._view.members} - {self.member.id}:
            self._lost.setdefault(member_id, cause)
            self._notify()

    def _notify(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._waker.send(b"x")
        self._changed.notify_all()

    def _serve(self) -> None:
        beaten = 0.0
        last = time.monotonic()
        while not self._closed:
            self._receive(HEARTBEAT_S / 4)
            now = time.monotonic()
            if now - last > PAUSE_S:
                with self._changed:
                    self._heard = {peer: at + now - last for peer, at in self._heard.items()}
            last = now
            if now - beaten >= HEARTBEAT_S:
                beaten = now
                self._beat(now)

    def _receive(self, timeout_s: float) -> None:
        with selectors.DefaultSelector() as selector:
            accept = functools.partial(self._callers.accept, self._socket)
            selector.register(self._socket, selectors.EVENT_READ, accept)
            self._callers.register(selector)
            with self._changed:
                for control in self._controls:
                    if control.connection.fileno() >= 0:
                        hear = functools.partial(self._hear, control)
                        selector.register(control.connection, selectors.EVENT_READ, hear)
            for key, _ in selector.select(timeout_s):
                key.data()
        self._callers.drop_late()

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
                    self._lose(control.peer, GONE)

    def _beat(self, now: float) -> None:
        with self._changed:
            for control in self._controls:
                with contextlib.suppress(OSError):
                    control.connection.send(b"h")
            for member in self._view.members:
                silence = now - self._heard.get(member.id, now)
                if member.id != self.member.id and silence > self.silent_after_s:
                    self._lose(member.id, SILENT)

    def _greet(self, connection: socket.socket, hello: bytes) -> None:
        token, sender, receiver, view, kind = HELLO.unpack(hello)
        if hmac.compare_digest(token, self._token) and receiver.decode() == self.member.id:
            self._admit(tuned(connection), sender.decode(), view, kind)
        else:
            connection.close()

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


def read_exactly(connection: socket.socket, size: int) -> bytes:
    """Return so many bytes. Raises OSError."""
    content = b""
    while len(content) < size:
        if not (part := connection.recv(size - len(content))):
            raise ConnectionError("the connection was closed")
        content += part
    return content


def tuned(connection: socket.socket) -> socket.socket:
    """Set a connection's options, and return it."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
    return connection
