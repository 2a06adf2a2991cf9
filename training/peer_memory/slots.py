"""The two newest snapshots of one rank, in memory that other processes of the node can map."""

from __future__ import annotations

import mmap
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from training.trainer.config.peer_memory import SLOTS


@dataclass(frozen=True, kw_only=True, order=True)
class Stamp:
    """Which state a snapshot is of: equal on all ranks that take it together."""

    step: int
    attempt: int
    """Start of the gang that took it."""
    world: int
    """Number of ranks."""


@dataclass
class Slot:
    """Memory for one snapshot."""

    descriptor: int
    memory: mmap.mmap
    stamp: Stamp | None = None
    """None while it is written, or empty."""
    files: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Offset and size of each file of a checkpoint, by name."""
    sender: socket.socket | None = None
    """The connection that fills it."""

    @classmethod
    def of_size(cls, size: int) -> Slot:
        """Allocate it; the memory is touched by whoever writes first."""
        descriptor = os.memfd_create("peer-memory", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, size)
        return cls(descriptor, mmap.mmap(descriptor, size))

    def content(self, name: str) -> memoryview:
        """Return a file. Raises KeyError."""
        begin, size = self.files[name]
        return memoryview(self.memory)[begin : begin + size]

    @property
    def used(self) -> memoryview:
        """Everything up to the end of the last file."""
        end = max((begin + size for begin, size in self.files.values()), default=0)
        return memoryview(self.memory)[:end]

    def close(self) -> None:
        """Free the memory, once no other process maps it; a connection that fills it ends."""
        os.close(self.descriptor)
        self.stamp = None
        if self.sender:  # its thread has a view of the memory
            with suppress(OSError):
                self.sender.shutdown(socket.SHUT_RDWR)


@dataclass
class RankMemory:
    """The snapshots of one rank."""

    size: int
    slots: list[Slot]
    attempt: int = 0
    """Newest start of the gang that writes here."""

    @classmethod
    def of_size(cls, size: int) -> RankMemory:
        """Allocate both slots."""
        return cls(size, [Slot.of_size(size) for _ in range(SLOTS)])

    def stamps(self) -> list[Stamp]:
        """Return the stamps of whole snapshots."""
        return [slot.stamp for slot in self.slots if slot.stamp]

    def next_slot(self, attempt: int, loaded: Stamp | None, step: int = -1) -> int:
        """Return the slot that a start of the gang writes next: an empty one, else what it needs least.

        It needs its own snapshots most, then the one that it has `loaded`: the only whole one until its first
        snapshot is on two nodes. What earlier starts left besides is incomplete or older, even of a later step.
        `step`: of the snapshot, which may be here already if the answer to it was lost.
        """

        def need(index: int) -> tuple[int, int, int]:
            slot = self.slots[index]
            if slot.stamp is None or (slot.stamp.step, slot.stamp.attempt) == (step, attempt):
                return (0, slot.sender is not None, 0)
            if slot.stamp.attempt != attempt:
                return (2 if slot.stamp == loaded else 1, slot.stamp.attempt, slot.stamp.step)
            return (3, 0, slot.stamp.step)

        return min(range(SLOTS), key=need)

    def find(self, stamp: Stamp) -> Slot | None:
        """Return the snapshot of this stamp."""
        return next((slot for slot in self.slots if slot.stamp == stamp), None)

    def close(self) -> None:
        """Free the memory."""
        for slot in self.slots:
            slot.close()


def stamp_to_json(stamp: Stamp) -> dict[str, int]:
    """Return plain values."""
    return asdict(stamp)


def stamp_from_json(values: Mapping[str, Any]) -> Stamp:
    """Inverse of `stamp_to_json`. Raises KeyError."""
    return Stamp(
        step=int(values["step"]), attempt=int(values["attempt"]), world=int(values["world"])
    )
