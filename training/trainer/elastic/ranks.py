"""The ranks of one group, and how they decide alike: each reports to rank 0, whose verdict all follow.

A group is lost as a whole. Its ranks enter a collective operation of their own only after a verdict, so that what
happens between groups never leaves some of them waiting for the others in it.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from training.trainer.elastic.links import MemberLost

_LENGTH: Final = struct.Struct("!I")
_SLACK_S: Final = 10.0
"""A verdict comes so much later than the limit of what the ranks report at most."""

T = TypeVar("T")


class RankLost(Exception):
    """Another rank of this group is gone or does not answer: the group ends."""


class GroupRanks:
    """This rank's connections with the other ranks of its group; for one thread."""

    def __init__(self, rank: int = 0, links: dict[int, socket.socket] | None = None) -> None:
        """`links`: connections to all other ranks on rank 0, to rank 0 on others; none for a group of one rank."""
        self.rank = rank
        self._links = {peer: Link(peer, connection) for peer, connection in (links or {}).items()}
        self._reports: dict[int, Any] = {}
        """What has been reported for the next verdict, by rank."""
        self._failed = False
        """Whether one of these ranks could not do its part."""
        self._unread: deque[dict[str, Any]] = deque()
        """Messages of rank 0, which may decide several times before this rank looks."""

    @property
    def alone(self) -> bool:
        """Whether this is the only rank."""
        return not self._links

    @property
    def sockets(self) -> list[socket.socket]:
        """Readable when `check` has something to find."""
        return [link.connection for link in self._links.values()]

    def agree(
        self,
        report: Any,
        decide: Callable[[list[Any]], T],
        *,
        failed: bool = False,
        timeout_s: float | None = None,
    ) -> T:
        """Return what rank 0 decides from the reports of all ranks, in their order.

        Reports and verdicts are JSON values, unless the rank is alone. `failed`: this rank could not do its part;
        those that are still at it are interrupted (`check`). `timeout_s`: of the part; None waits as long as all
        processes are alive. Raises RankLost.
        """
        if self.alone:
            return decide([report])
        limit = None if timeout_s is None else time.monotonic() + timeout_s + _SLACK_S
        if self.rank == 0:
            return self._lead(report, decide, failed, limit)
        self._links[0].send({"report": report, "failed": failed})
        return cast(T, self._await_verdict(limit))

    def share(self, find: Callable[..., T], *arguments: Any) -> T:
        """Return what rank 0 finds, a JSON value. Raises RankLost."""
        if self.alone:
            return find(*arguments)
        if self.rank:
            return cast(T, self._await_verdict(None))
        value = find(*arguments)
        self._send({"verdict": value}, self._links)
        return value

    def together(self, work: Callable[[], T], timeout_s: float) -> T:
        """Do this rank's part of something that fails on all ranks if it fails on one.

        Raises MemberLost with all members that any rank lost, and RankLost.
        """
        found, lost = None, None
        try:
            found = work()
        except MemberLost as error:
            lost = sorted(error.lost)
        all_lost = self.agree(lost, merge_lost, failed=lost is not None, timeout_s=timeout_s)
        if all_lost is not None:
            raise MemberLost(set(all_lost))
        assert found is not None
        return found

    def check(self) -> None:
        """Raise MemberLost if a rank could not do its part of what this one is at; else note what came in."""
        if self.alone:
            return
        for link in self._links.values():
            messages = link.receive()
            self._unread += messages if self.rank else ()
            for message in messages if self.rank == 0 else ():
                self._note(link.peer, message)
        if self._failed or any("abort" in message for message in self._unread):
            raise MemberLost(set())

    def close(self) -> None:
        """Close the connections."""
        for link in self._links.values():
            link.connection.close()

    def _lead(
        self, report: Any, decide: Callable[[list[Any]], T], failed: bool, limit: float | None
    ) -> T:
        interrupted = False
        self._reports[0] = report
        self._failed = self._failed or failed
        while missing := set(self._links) - set(self._reports):
            if self._failed and not interrupted:
                interrupted = True
                self._send({"abort": True}, missing)
            for link in self._wait(limit, missing):
                for message in link.receive():
                    self._note(link.peer, message)
        verdict = decide([self._reports[rank] for rank in sorted(self._reports)])
        self._reports.clear()
        self._failed = False
        self._send({"verdict": verdict}, self._links)
        return verdict

    def _await_verdict(self, limit: float | None) -> Any:
        while True:
            while self._unread:
                message = self._unread.popleft()
                if "verdict" in message:
                    return message["verdict"]
            for link in self._wait(limit, {0}):
                self._unread += link.receive()

    def _note(self, rank: int, message: dict[str, Any]) -> None:
        self._reports[rank] = message["report"]
        self._failed = self._failed or message["failed"]

    def _send(self, message: dict[str, Any], to: Any) -> None:
        for rank in sorted(to):
            self._links[rank].send(message)

    def _wait(self, limit: float | None, missing: set[int]) -> list[Link]:
        """Return connections that can be read."""
        with selectors.DefaultSelector() as selector:
            for rank in missing:
                selector.register(
                    self._links[rank].connection, selectors.EVENT_READ, self._links[rank]
                )
            left = None if limit is None else max(0.0, limit - time.monotonic())
            ready = selector.select(left)
        if not ready:
            names = ", ".join(map(str, sorted(missing)))
            raise RankLost(f"rank {names} of this group does not answer")
        return [key.data for key, _ in ready]


def merge_lost(reports: list[list[str] | None]) -> list[str] | None:
    """Return the members that any rank lost; None if all ranks did their part."""
    failed = [report for report in reports if report is not None]
    return sorted({member for report in failed for member in report}) if failed else None


class Link:
    """Messages to and from one rank: JSON after its length."""

    def __init__(self, peer: int, connection: socket.socket) -> None:
        self.peer = peer
        self.connection = connection
        self._content = b""

    def send(self, message: dict[str, Any]) -> None:
        """Send a message. Raises RankLost."""
        content = json.dumps(message).encode()
        try:
            self.connection.sendall(_LENGTH.pack(len(content)) + content)
        except OSError:
            self._gone()

    def receive(self) -> list[dict[str, Any]]:
        """Return the messages that have come, without waiting. Raises RankLost."""
        try:
            content = self.connection.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError:
            content = b""
        if not content:
            self._gone()
        self._content += content
        found = []
        while len(self._content) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._content)[0]
            if len(self._content) < end:
                break
            found.append(json.loads(self._content[_LENGTH.size : end]))
            self._content = self._content[end:]
        return found

    def _gone(self) -> None:
        raise RankLost(f"rank {self.peer} of this group is gone")
