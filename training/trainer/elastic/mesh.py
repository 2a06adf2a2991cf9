"""The data links of one rank in one view: everyone sends to and receives from everyone at once."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Mapping, Sequence

from training.trainer.elastic.links import GONE, LATE, Listener, MemberLost
from training.trainer.elastic.ranks import GroupRanks
from training.trainer.elastic.views import View

Buffers = Mapping[str, Sequence[memoryview]]


class Mesh:
    """The data links of one view; for one thread."""

    def __init__(
        self,
        listener: Listener,
        view: View,
        links: Mapping[str, socket.socket],
        ranks: GroupRanks,
    ) -> None:
        self._listener = listener
        self._ranks = ranks
        self.view = view
        self._links = dict(links)
        for link in self._links.values():
            link.setblocking(False)

    @property
    def others(self) -> list[str]:
        """Ids of the other members, in their order."""
        return [member.id for member in self.view.members if member.id in self._links]

    def close(self) -> None:
        """Close the links, which shows the others that this member has left the view."""
        for link in self._links.values():
            link.close()

    def swap(self, outgoing: Buffers, incoming: Buffers, timeout_s: float) -> None:
        """Send and fill all buffers, by member.

        Raises MemberLost, also when another rank of the group did, and when another group has taken the run over.
        A member whose bytes have not come within `timeout_s` counts as lost, though it may be alive.
        """
        # Only before this member sends: after it, others may have agreed on the next view by this very round.
        if self._listener.taken_over():
            raise MemberLost(self._listener.lost())
        sending = {peer: [part for part in parts if part] for peer, parts in outgoing.items()}
        waiting = {peer: [part for part in parts if part] for peer, parts in incoming.items()}
        for peer in list(sending):
            self._send(peer, sending)
        for peer in list(waiting):
            self._fill(peer, waiting)
        if not sending and not waiting:
            return
        self._swap_rest(sending, waiting, time.monotonic() + timeout_s)

    def _swap_rest(
        self,
        sending: dict[str, list[memoryview]],
        waiting: dict[str, list[memoryview]],
        limit: float,
    ) -> None:
        self._ranks.check()  # what came with the last verdict does not make a socket readable
        with selectors.DefaultSelector() as selector:
            for watched in (self._listener.wake, *self._ranks.sockets):
                selector.register(watched, selectors.EVENT_READ)
            for peer in {*sending, *waiting}:
                selector.register(self._links[peer], _events(peer, sending, waiting), peer)
            while sending or waiting:
                ready = selector.select(max(0.0, limit - time.monotonic()))
                if not ready:
                    for peer in waiting or sending:
                        self._listener.report_lost(peer, LATE)
                for key, events in ready:
                    if key.data is None:
                        self._check()
                        continue
                    if events & selectors.EVENT_WRITE:
                        self._send(key.data, sending)
                    if events & selectors.EVENT_READ:
                        self._fill(key.data, waiting)
                    if wanted := _events(key.data, sending, waiting):
                        selector.modify(key.fileobj, wanted, key.data)
                    else:
                        selector.unregister(key.fileobj)
                if not ready:
                    self._check()

    def _check(self) -> None:
        self._ranks.check()
        lost = self._listener.lost()
        if lost or self._listener.superseded():
            raise MemberLost(lost)
        self._listener.clear_wake()

    def _send(self, peer: str, sending: dict[str, list[memoryview]]) -> None:
        parts, link = sending[peer], self._links[peer]
        try:
            while parts:
                sent = link.send(parts[0])
                parts[0] = parts[0][sent:]
                if not parts[0]:
                    parts.pop(0)
        except BlockingIOError:
            return
        except OSError:
            self._broken(peer)
        del sending[peer]

    def _fill(self, peer: str, waiting: dict[str, list[memoryview]]) -> None:
        parts, link = waiting.get(peer, []), self._links[peer]
        try:
            while parts:
                got = link.recv_into(parts[0])
                if not got:
                    self._broken(peer)
                parts[0] = parts[0][got:]
                if not parts[0]:
                    parts.pop(0)
        except BlockingIOError:
            return
        except OSError:
            self._broken(peer)
        waiting.pop(peer, None)

    def _broken(self, peer: str) -> None:
        self._listener.report_lost(peer, GONE)
        raise MemberLost(self._listener.lost())


def _events(peer: str, sending: Buffers, waiting: Buffers) -> int:
    return (selectors.EVENT_WRITE if peer in sending else 0) | (
        selectors.EVENT_READ if peer in waiting else 0
    )
