"""Which snapshot is complete, and which node has which part of it."""

from __future__ import annotations

import json
import socket
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.peer_memory import wire
from training.peer_memory.slots import Stamp, stamp_from_json, stamp_to_json
from trainyard.disk import replace_text


@dataclass(frozen=True, kw_only=True)
class Part:
    """One rank's part of a snapshot on one node."""

    stamp: Stamp
    rank: int
    files: Mapping[str, tuple[int, int]]
    """Offset and size of each file, by name."""
    address: Mapping[str, Any]
    """Host and port of the keeper that has it."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "stamp": stamp_to_json(self.stamp),
            "rank": self.rank,
            "files": {name: list(place) for name, place in self.files.items()},
            "address": dict(self.address),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Part:
        """Inverse of `to_json`. Raises KeyError."""
        return cls(
            stamp=stamp_from_json(values["stamp"]),
            rank=int(values["rank"]),
            files={name: (place[0], place[1]) for name, place in values["files"].items()},
            address=values["address"],
        )


def distrust(run_dir: Path, attempt: int, after_step: int) -> None:
    """Record that snapshots of later steps, by this start of the gang or an earlier one, may be wrong."""
    values = {"attempt": attempt, "after_step": after_step}
    replace_text(_distrust_file(run_dir), json.dumps(values) + "\n")


def trusted(run_dir: Path, parts: Iterable[Part]) -> list[Part]:
    """Return the parts that `distrust` does not speak of."""
    try:
        found = json.loads(_distrust_file(run_dir).read_text(encoding="utf-8"))
        attempt, step = int(found["attempt"]), int(found["after_step"])
    except (FileNotFoundError, ValueError, KeyError):
        return list(parts)
    return [p for p in parts if p.stamp.attempt > attempt or p.stamp.step <= step]


def _distrust_file(run_dir: Path) -> Path:
    return wire.address_file(run_dir, 0).with_name("distrusted.json")


def newest_complete(parts: Iterable[Part]) -> list[Part]:
    """Return one part for each rank of the newest snapshot of which no part is missing; else nothing."""
    by_stamp: dict[Stamp, dict[int, Part]] = defaultdict(dict)
    for part in parts:
        by_stamp[part.stamp].setdefault(part.rank, part)
    whole = [stamp for stamp, ranks in by_stamp.items() if ranks.keys() >= set(range(stamp.world))]
    if not whole:
        return []
    found = by_stamp[max(whole)]
    return [found[rank] for rank in range(max(whole).world)]


def ask(address: Mapping[str, Any], token: bytes) -> list[Part]:
    """Return what a keeper has. Raises OSError."""
    with wire.dial(address, token) as connection:
        wire.send(connection, {"kind": "inventory"})
        found = wire.receive(connection)
    return [Part.from_json(one) for one in found["parts"]]


def fetch(part: Part, name: str, token: bytes) -> Fetch:
    """Open a file of a part for reading. Raises OSError."""
    connection = wire.dial(part.address, token)
    try:
        request = {"kind": "read", "stamp": stamp_to_json(part.stamp)}
        wire.send(connection, request | {"rank": part.rank, "name": name})
        size = wire.receive(connection).get("bytes")
        if size is None:
            raise wire.Unreachable(f"{name}: the keeper has it no more")
        return Fetch(connection, int(size))
    except BaseException:
        connection.close()
        raise


class Fetch:
    """A file that a keeper sends: read in order, as a checkpoint's Source."""

    def __init__(self, connection: socket.socket, size: int) -> None:
        self._connection, self.left = connection, size

    def readinto(self, out: memoryview, /) -> int:
        """Read up to len(out) bytes; return the count, 0 at the end. Raises OSError."""
        if not self.left:
            return 0
        got = self._connection.recv_into(out[: self.left])
        if not got:
            raise wire.Unreachable("the keeper is gone")
        self.left -= got
        return got

    def __enter__(self) -> Fetch:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def keepers(run_dir: Path) -> list[dict[str, Any]]:
    """Return the addresses of all keepers that the run has named, by node; some may be gone."""
    found = []
    for file in sorted(wire.address_file(run_dir, 0).parent.glob("node-*.json")):
        with suppress(OSError, ValueError):
            found.append(json.loads(file.read_text(encoding="utf-8")))
    return sorted(found, key=lambda one: int(one["node"]))
