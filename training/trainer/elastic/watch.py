"""Connects the ranks of a group, and ends this rank when another one is gone or silent.

A thread watches: the training thread may wait in a collective operation that a lost rank never enters.
"""

from __future__ import annotations

import contextlib
import hmac
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from training.trainer.elastic.links import HEARTBEAT_S, PAUSE_S, read_exactly, tuned
from training.trainer.elastic.ranks import GroupRanks, RankLost
from training.trainer.elastic.views import TOKEN_BYTES
from training.trainer.parallel.world import World

_HELLO: Final = struct.Struct(f"!{TOKEN_BYTES}sIc")
"""Token, rank, kind."""
_VERDICTS, _WATCH = b"v", b"w"
_BEAT, _END = b"h", b"e"
_KEY: Final = "group-ranks"
_CONNECT_S: Final = 120.0
"""As long as ranks wait for each other at a rendezvous."""
_HELLO_S: Final = 5.0

Fail = Callable[[str, int | None], None]
"""Ends the process with the reason; the number: of a rank that has been silent."""


@dataclass
class Watch:
    """Heartbeats to and from the other ranks: all on rank 0, rank 0 on others."""

    links: dict[int, socket.socket]
    silent_after_s: float
    fail: Fail

    def __post_init__(self) -> None:
        self._ending = False
        if self.links:
            threading.Thread(target=self._run, name="watch", daemon=True).start()

    def end(self) -> None:
        """Tell the others that this rank ends, and not because it failed."""
        self._ending = True
        for link in self.links.values():
            with contextlib.suppress(OSError):
                link.sendall(_END)

    def _run(self) -> None:
        last, beaten = time.monotonic(), 0.0
        heard = dict.fromkeys(self.links, last)
        while heard and not self._ending:
            self._receive(heard)
            now = time.monotonic()
            if now - last > PAUSE_S:
                heard = {rank: at + now - last for rank, at in heard.items()}
            last = now
            if now - beaten >= HEARTBEAT_S and not self._ending:
                beaten = now
                for rank in heard:
                    with contextlib.suppress(OSError):
                        self.links[rank].send(_BEAT, socket.MSG_DONTWAIT)
            for rank, at in heard.items():
                if now - at > self.silent_after_s and not self._ending:
                    text = f"rank {rank} of this group has been silent for {now - at:.1f} s"
                    self.fail(text, rank)

    def _receive(self, heard: dict[int, float]) -> None:
        """Note who has sent a sign of life; forget who ends."""
        ready, _, _ = select.select([self.links[rank] for rank in heard], [], [], HEARTBEAT_S / 2)
        for rank in list(heard):
            if self.links[rank] not in ready:
                continue
            try:
                content = self.links[rank].recv(4096)
            except OSError:
                content = b""
            if _END in content:  # a last beat may follow it
                del heard[rank]
            elif content:
                heard[rank] = time.monotonic()
            elif not self._ending:
                self.fail(f"rank {rank} of this group is gone", None)


def connect_ranks(
    world: World, token: bytes, host: str, silent_after_s: float, fail: Fail
) -> tuple[GroupRanks, Watch]:
    """Connect the ranks of this group. Raises RankLost when one does not come."""
    try:
        links = _accept_all(world, token, host) if world.rank == 0 else _call(world, token)
    except OSError as error:
        raise RankLost(f"the ranks of this group did not connect: {error}") from None
    verdicts = {rank: link for (rank, kind), link in links.items() if kind == _VERDICTS}
    watched = {rank: link for (rank, kind), link in links.items() if kind == _WATCH}
    return GroupRanks(world.rank, verdicts), Watch(watched, silent_after_s, fail)


def _accept_all(world: World, token: bytes, host: str) -> dict[tuple[int, bytes], socket.socket]:
    found: dict[tuple[int, bytes], socket.socket] = {}
    if world.size == 1:
        return found
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family, backlog=2 * world.size) as server:
        world.store.set(_KEY, f"{server.getsockname()[1]} {host}")
        limit = time.monotonic() + _CONNECT_S
        while len(found) < 2 * (world.size - 1):
            server.settimeout(max(0.001, limit - time.monotonic()))
            connection, _ = server.accept()
            connection.settimeout(_HELLO_S)
            with contextlib.suppress(OSError):
                shown, rank, kind = _HELLO.unpack(read_exactly(connection, _HELLO.size))
                if hmac.compare_digest(shown, token):
                    connection.settimeout(None)
                    found[rank, kind] = tuned(connection)
    return found


def _call(world: World, token: bytes) -> dict[tuple[int, bytes], socket.socket]:
    world.store.wait([_KEY], timedelta(seconds=_CONNECT_S))
    port, host = world.store.get(_KEY).decode().split(" ")
    found = {}
    for kind in (_VERDICTS, _WATCH):
        connection = socket.create_connection((host, int(port)), timeout=_CONNECT_S)
        connection.sendall(_HELLO.pack(token, world.rank, kind))
        connection.settimeout(None)
        found[0, kind] = tuned(connection)
    return found
