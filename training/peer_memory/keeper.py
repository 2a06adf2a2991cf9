"""The keeper of a node: `python -m training.peer_memory.keeper --run-dir DIR --nodes N`.

It owns the memory of the snapshots of its node's ranks, sends each snapshot to the keeper of the next node, and
gives snapshots out to ranks that start again. The parent of the pod's command starts it, and it ends with that. At
SIGTERM it first writes the newest snapshot to storage, unless storage has as new a checkpoint. Needs no torch.

Ranks connect to the socket that TRAINYARD_PEER_MEMORY names:

    rank:   {"open": {rank, world, bytes, attempt, loaded}}    keeper: the slot to write next, and descriptors
    rank:   {"writing": slot}                                  the slot's old content is void
    rank:   {"snapshot": {slot, stamp, files}}                 keeper: {"held": step, "problem": text} once sent on

Other keepers and ranks of all nodes connect by TCP, and show the run's token:

    {"kind": "store", rank, bytes, stamp, loaded, files} + content     {"stored": step}
    {"kind": "inventory"}                                      {"parts": [...]}
    {"kind": "read", rank, stamp, name}                        {"bytes": n} + content, or {"bytes": null}
    {"kind": "write", stamp, attempt, store, files}            {"records": {...}} or {"error": text}
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from training.peer_memory import flush, wire
from training.peer_memory.inventory import Part
from training.peer_memory.slots import RankMemory, Slot, stamp_from_json, stamp_to_json
from trainyard.contract import DEFAULT_NOTICE_S, PEER_MEMORY_ENV, POD_IP_ENV
from trainyard.disk import replace_text
from trainyard.restarts import INDEX_ENV
from trainyard.shared_files import shared_token

_GIVE_UP_S: Final = 30.0
"""How long a keeper tries to reach the next node's before the rank goes on without it. The receiver
takes a transfer for dead when nothing has come for as long."""
_RETRY_S: Final = 0.2
_PAUSE_S: Final = 20.0
"""Then it leaves the next node alone for so long: training must not wait for it at every step."""


class Keeper:
    """The snapshots on this node, and the threads that serve them."""

    def __init__(self, run_dir: Path, node: int, nodes: int, host: str) -> None:
        self.run_dir, self.node, self.nodes = run_dir, node, nodes
        folder = wire.address_file(run_dir, node).parent
        folder.mkdir(parents=True, exist_ok=True)
        self.token = shared_token(folder / "token")
        self._own: dict[tuple[int, int], RankMemory] = {}
        """Of ranks of this node, by rank and world size."""
        self._copies: dict[tuple[int, int], RankMemory] = {}
        """Of ranks of the node before this one."""
        self._links: dict[tuple[int, int], _Link] = {}
        """Of the newest process of each rank of this node."""
        self._lock = threading.Lock()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._server = socket.create_server((host, 0), family=family, backlog=64)
        self.address = {"node": node, "host": host, "port": self._server.getsockname()[1]}
        _start(self._accept, self._server, self._serve_caller)
        replace_text(wire.address_file(run_dir, node), json.dumps(self.address) + "\n")

    def listen(self, path: Path) -> None:
        """Serve the ranks of this node at a socket."""
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path.unlink(missing_ok=True)
        server.bind(str(path))
        path.chmod(0o600)
        server.listen(64)
        _start(self._accept, server, self._serve_rank)

    def parts(self) -> list[Part]:
        """Return every whole snapshot on this node."""
        with self._lock:
            return [
                Part(stamp=slot.stamp, rank=rank, files=dict(slot.files), address=self.address)
                for memories in (self._own, self._copies)
                for (rank, _), memory in memories.items()
                for slot in memory.slots
                if slot.stamp
            ]

    def slot_of(self, rank: int, stamp: Any) -> Slot | None:
        """Return the memory of a part; None if it is not here."""
        wanted = stamp_from_json(stamp)
        with self._lock:
            for memories in (self._own, self._copies):
                memory = memories.get((rank, wanted.world))
                if memory and (slot := memory.find(wanted)):
                    return slot
        return None

    def _accept(self, server: socket.socket, serve: Any) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            _start(self._guarded, serve, connection)

    def _guarded(self, serve: Any, connection: socket.socket) -> None:
        with connection:
            try:
                serve(connection)
            except (OSError, KeyError, TypeError, ValueError):
                return  # the other side is gone, or is not one of ours

    # Ranks of this node

    def _serve_rank(self, connection: socket.socket) -> None:
        opened = wire.receive(connection)["open"]
        key, size = (int(opened["rank"]), int(opened["world"])), int(opened["bytes"])
        loaded = opened["loaded"]
        link = _Link(self, loaded)
        with self._lock:
            former, self._links[key] = self._links.get(key), link
            memory = _memory_of(self._own, key, size)
            first = memory.next_slot(
                int(opened["attempt"]), stamp_from_json(loaded) if loaded else None
            )
        if former:  # its rank has ended, and this one is about to write there
            former.stop()
        descriptors = [slot.descriptor for slot in memory.slots]
        socket.send_fds(connection, [bytes([first])], descriptors)
        try:
            while True:
                self._take(connection, memory, key, link)
        finally:
            link.close()

    def _take(
        self, connection: socket.socket, memory: RankMemory, key: tuple[int, int], link: _Link
    ) -> None:
        message = wire.receive(connection)
        if "writing" in message:
            with self._lock:
                self._require_newest(key, link)
                memory.slots[message["writing"]].stamp = None
            return
        about = message["snapshot"]
        slot = memory.slots[about["slot"]]
        stamp = stamp_from_json(about["stamp"])
        with self._lock:
            self._require_newest(key, link)
            slot.files = {name: (begin, size) for name, (begin, size) in about["files"].items()}
            slot.stamp = stamp
            # A snapshot begins when all parts of the one before are on two nodes.
            self._drop_older(stamp.attempt)
        problem = link.store(key[0], memory.size, slot)
        wire.send(connection, {"held": stamp.step, "problem": problem})

    def _require_newest(self, key: tuple[int, int], link: _Link) -> None:
        """Raise Unreachable for a message that a process left which has ended."""
        if self._links[key] is not link:
            raise wire.Unreachable("another process of this rank has begun")

    def _drop_older(self, attempt: int) -> None:
        """Free what earlier starts of the gang left, once this one has two snapshots."""
        newest = [s for m in self._own.values() for s in m.stamps() if s.attempt == attempt]
        if len({stamp.step for stamp in newest}) < 2:
            return
        for memories in (self._own, self._copies):
            for key in list(memories):
                stamps = memories[key].stamps()
                if stamps and max(stamp.attempt for stamp in stamps) < attempt:
                    memories.pop(key).close()

    # Other keepers, and ranks that recover

    def _serve_caller(self, connection: socket.socket) -> None:
        if not wire.is_known(connection, self.token):
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            message = wire.receive(connection)
            kind = message["kind"]
            if kind == "store":
                self._store(connection, message)
            elif kind == "inventory":
                wire.send(connection, {"parts": [part.to_json() for part in self.parts()]})
            elif kind == "read":
                slot = self.slot_of(message["rank"], message["stamp"])
                content = slot.content(message["name"]) if slot else None
                size = len(content) if content is not None else None
                wire.send(connection, {"bytes": size}, content)
            elif kind == "write":
                wire.send(connection, flush.write_files(self, message))
            else:
                return

    def _store(self, connection: socket.socket, message: dict[str, Any]) -> None:
        stamp, size = stamp_from_json(message["stamp"]), int(message["bytes"])
        key = (int(message["rank"]), stamp.world)
        with self._lock:
            memory = _memory_of(self._copies, key, size)
            if stamp.attempt < memory.attempt:
                raise wire.Unreachable("a later start of the gang writes here")
            memory.attempt = stamp.attempt
            loaded = message["loaded"]
            index = memory.next_slot(
                stamp.attempt, stamp_from_json(loaded) if loaded else None, stamp.step
            )
            if memory.slots[index].sender:  # a connection that is over or will soon be
                memory.slots[index].close()
                memory.slots[index] = Slot.of_size(memory.size)
            slot = memory.slots[index]
            slot.stamp, slot.sender = None, connection
            slot.files = {n: (begin, length) for n, (begin, length) in message["files"].items()}
        received = False
        try:
            connection.settimeout(_GIVE_UP_S)  # a node without power closes no connection
            wire.receive_into(connection, slot.used)
            received = True
        finally:
            with self._lock:
                slot.sender, slot.stamp = None, stamp if received else None
        connection.settimeout(None)
        wire.send(connection, {"stored": stamp.step})


def _memory_of(
    memories: dict[tuple[int, int], RankMemory], key: tuple[int, int], size: int
) -> RankMemory:
    """Return a rank's memory of at least this size; a smaller one is freed."""
    memory = memories.get(key)
    if memory is None or memory.size < size:
        if memory:
            memory.close()
        memory = memories[key] = RankMemory.of_size(size)
    return memory


class _Link:
    """The connection on which one rank's snapshots go to the next node; made when needed."""

    def __init__(self, keeper: Keeper, loaded: Any) -> None:
        self._keeper, self._loaded = keeper, loaded
        self._stopped = False
        self._connection: socket.socket | None = None
        self._paused_until = 0.0

    def store(self, rank: int, size: int, slot: Slot) -> str:
        """Send a snapshot until it is stored; return why it is not, or an empty text."""
        assert slot.stamp is not None
        header = {
            "kind": "store",
            "rank": rank,
            "bytes": size,
            "stamp": stamp_to_json(slot.stamp),
            "loaded": self._loaded,
            "files": slot.files,
        }
        limit = time.monotonic() + _GIVE_UP_S
        if time.monotonic() < self._paused_until:
            return "the next node's memory could not be reached"
        while True:
            try:
                connection = self._connected()
                wire.send(connection, header, slot.used)
                wire.receive(connection)
                self._paused_until = 0.0
                return ""
            except (OSError, ValueError, KeyError) as error:
                self.close()
                if self._stopped:
                    return "another process of this rank has begun"
                if time.monotonic() > limit or self._paused_until:
                    self._paused_until = time.monotonic() + _PAUSE_S
                    return f"the next node's memory cannot be reached: {error}"
                time.sleep(_RETRY_S)

    def stop(self) -> None:
        """Send nothing more, from any thread."""
        self._stopped = True
        connection = self._connection
        if connection:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        if self._connection:
            self._connection.close()
            self._connection = None

    def _connected(self) -> socket.socket:
        if self._connection is None and not self._stopped:
            keeper = self._keeper
            file = wire.address_file(keeper.run_dir, (keeper.node + 1) % keeper.nodes)
            address = json.loads(file.read_text(encoding="utf-8"))
            self._connection = wire.dial(address, keeper.token)
            self._connection.settimeout(_GIVE_UP_S)
        if self._stopped or self._connection is None:
            raise wire.Unreachable("stopped")
        return self._connection


def main(arguments: Sequence[str]) -> int:
    """Keep snapshots until SIGTERM, or until the parent is gone."""
    options = _parser().parse_args(arguments)
    path = os.environ.get(PEER_MEMORY_ENV)
    if not path:
        print(f"keeper: {PEER_MEMORY_ENV} is not set; it must name a socket", file=sys.stderr)
        return 2
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    host = os.environ.get(POD_IP_ENV) or "127.0.0.1"
    keeper = Keeper(options.run_dir, options.node, options.nodes, host)
    keeper.listen(Path(path))
    _start(_end_with_parent)
    stopped.wait()
    if text := flush.flush(keeper, options.store, options.grace_seconds):
        print(f"keeper: {text}", file=sys.stderr, flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m training.peer_memory.keeper")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument(
        "--node", type=int, default=int(os.environ.get(INDEX_ENV, "0")), help="index of this node"
    )
    parser.add_argument("--store", help="checkpoint.store of the run; default: the run directory")
    parser.add_argument(
        "--grace-seconds",
        type=float,
        default=DEFAULT_NOTICE_S,
        help="from SIGTERM to the hard end; default: %(default)s",
    )
    return parser


def _end_with_parent() -> None:
    """End at once when the parent is gone: it holds the other end of standard input."""
    while os.read(0, 4096):
        pass
    os._exit(1)


def _start(function: Any, *arguments: Any) -> None:
    threading.Thread(target=function, args=arguments, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
