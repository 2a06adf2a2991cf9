"""The last marks of a rank in memory that outlives it.

A file of fixed size on a memory file system of the node, mapped by the rank: it survives SIGKILL, and the other
ranks of the node can read it while this one hangs. There is one writer. A reader takes whatever is there: marks
carry their number, so one that is just being overwritten is recognized.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import struct
import tempfile
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

_SIZE: Final = 256
"""Marks that are kept; a step makes five."""
_MARK: Final = struct.Struct("=QqqqQQ")
_IDENTITY_BYTES: Final = 2048
_BYTES: Final = _IDENTITY_BYTES + _SIZE * _MARK.size
STACK: Final = ".stack"
"""Suffix of the file beside a ring into which a blocked interpreter's frames are written."""
ENDED: Final = ("", "Z", "X")
"""States of a process that has ended."""
_SHARED_MEMORY: Final = Path("/dev/shm")


class Phase(IntEnum):
    """What a rank is doing."""

    STARTUP = 0
    LOADER = 1
    PASSES = 2
    UPDATE = 3
    AGREE = 4
    BETWEEN = 5
    EVALUATION = 6
    SAVE = 7
    COMPARE = 8
    FINISH = 9

    @property
    def text(self) -> str:
        """The phase in words."""
        return _WORDS[self]


_WORDS: Final = {
    Phase.STARTUP: "its start",
    Phase.LOADER: "the loader",
    Phase.PASSES: "the forward and backward pass",
    Phase.UPDATE: "the optimizer",
    Phase.AGREE: "the exchange that ends a step",
    Phase.BETWEEN: "the time between two steps",
    Phase.EVALUATION: "the evaluation",
    Phase.SAVE: "the start of a save",
    Phase.COMPARE: "the comparison of replicas",
    Phase.FINISH: "the end of the run",
}


@dataclass(frozen=True)
class Mark:
    """The beginning of a phase."""

    number: int
    """Counted from 1."""
    time_ns: int
    """CLOCK_MONOTONIC: comparable on one node."""
    step: int
    phase: int
    issued: int
    """Collectives that this rank had issued; in an elastic run, exchanges with other groups."""
    inside: int = 0
    """In an elastic run, collectives that it had issued inside its group."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The rank that a ring belongs to."""

    rank: int
    pid: int
    started: int
    """Start time of the process in clock ticks since boot: with the pid, its identity on the node."""


class Ring:
    """The writer's side."""

    def __init__(self, file: Path, identity: Identity) -> None:
        """Create the file, in place of an earlier one. Raises OSError."""
        self.file = file
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = file.with_name(f".{file.name}-{os.getpid()}")
        with open(fresh, "w+b") as stream:
            stream.write(json.dumps(asdict(identity)).encode().ljust(_IDENTITY_BYTES))
            stream.truncate(_BYTES)
            stream.flush()
            self._map = mmap.mmap(stream.fileno(), _BYTES)
        fresh.replace(file)
        self._number = 0

    def mark(self, time_ns: int, step: int, phase: int, issued: int, inside: int) -> None:
        """Add a mark."""
        place = _IDENTITY_BYTES + self._number % _SIZE * _MARK.size
        self._number += 1
        _MARK.pack_into(self._map, place, self._number, time_ns, step, phase, issued, inside)

    def remove(self) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):
            self.file.unlink()
            self.file.with_suffix(STACK).unlink(missing_ok=True)
            self.file.parent.rmdir()


def read_ring(file: Path) -> tuple[Identity, list[Mark]]:
    """Return whose ring it is and its marks, the oldest first. Raises OSError, ValueError, TypeError."""
    content = file.read_bytes()
    if len(content) != _BYTES:
        raise ValueError(f"{file}: {len(content)} bytes; expected {_BYTES}")
    identity = Identity(**json.loads(content[:_IDENTITY_BYTES]))
    found = []
    for place in range(_SIZE):
        mark = Mark(*_MARK.unpack_from(content, _IDENTITY_BYTES + place * _MARK.size))
        if mark.number and (mark.number - 1) % _SIZE == place:
            found.append(mark)
    return identity, sorted(found, key=lambda mark: mark.number)


def ring_file(run_dir: Path, rank: int) -> Path:
    """Return the place of the ring of this process, which is a rank of the run, on its node."""
    return ring_folder(run_dir) / f"rank-{rank:05d}-{os.getpid()}"


def ring_folder(run_dir: Path) -> Path:
    """Return the folder of the rings of a run's ranks on this node."""
    run = hashlib.sha256(str(run_dir.resolve()).encode()).hexdigest()[:16]
    return _memory() / f"trainyard-flight-{os.getuid()}-{run}"


def remove_old_rings(run_dir: Path) -> None:
    """Remove what processes that have ended left on this node."""
    for file in ring_folder(run_dir).glob("rank-*"):
        with contextlib.suppress(OSError, ValueError, TypeError):
            if process_state(read_ring(file)[0]) in ENDED:
                file.unlink()
                file.with_suffix(STACK).unlink(missing_ok=True)


def _memory() -> Path:
    """A memory file system where there is one: writing to a mapped file on a disk can wait for the disk."""
    return _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else Path(tempfile.gettempdir())


def started_ticks(pid: int) -> int | None:
    """Return when a process started, in ticks since boot; None if it is gone."""
    try:
        content = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(content.rpartition(")")[2].split()[19])


def process_state(identity: Identity) -> str:
    """Return the kernel's letter for the state of a rank's process: R, S, D, T, Z ...; empty if it is gone."""
    try:
        content = Path(f"/proc/{identity.pid}/stat").read_text()
    except OSError:
        return ""
    fields = content.rpartition(")")[2].split()
    return fields[0] if int(fields[19]) == identity.started else ""
