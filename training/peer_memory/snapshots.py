"""A rank's side: copy its part of the state into the keeper's memory, and know when two nodes have it."""

from __future__ import annotations

import mmap
import os
import queue
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import torch

from training.checkpoint.local_tensors import Groups
from training.checkpoint.plan import PlannedFile
from training.checkpoint.staging import Staging, room_for
from training.peer_memory import wire
from training.peer_memory.slots import Stamp, stamp_to_json
from training.trainer.config.peer_memory import SLOTS
from trainyard.contract import PEER_MEMORY_ENV

_SMALL_BYTES: Final = 4 << 20
"""Room for what changes in size: progress, random states."""


class Snapshots:
    """The two slots of this rank, written in turn; for one thread."""

    def __init__(
        self,
        connection: socket.socket,
        files: Sequence[PlannedFile],
        like: Groups,
        *,
        rank: int,
        world: int,
        attempt: int,
        loaded: Stamp | None,
        small_bytes: int,
        device: torch.device,
    ) -> None:
        """`files`: tensors of this rank's part; `small_bytes`: size of its other files, about.

        `loaded`: the snapshot that this start of the gang has loaded. It is not overwritten before the first one
        of this start is on two nodes.
        """
        self._connection, self._device = connection, device
        self._planned = room_for(files)
        size = self._planned + small_bytes + _SMALL_BYTES
        opened = {"rank": rank, "world": world, "bytes": size, "attempt": attempt}
        wire.send(
            connection, {"open": opened | {"loaded": stamp_to_json(loaded) if loaded else None}}
        )
        first, descriptors, _, _ = socket.recv_fds(connection, 1, SLOTS)
        self._next = first[0]
        self._maps = [mmap.mmap(descriptor, size) for descriptor in descriptors]
        for descriptor in descriptors:
            os.close(descriptor)
        self._memories = [torch.frombuffer(one, dtype=torch.uint8) for one in self._maps]
        if device.type == "cuda":  # copies from the GPU are asynchronous from pinned memory only
            for memory in self._memories:
                torch.cuda.cudart().cudaHostRegister(memory.data_ptr(), size, 0)  # type: ignore[no-untyped-call]
        self._staged = [Staging(files, like, device, memory) for memory in self._memories]
        self._sending = threading.Lock()
        self._held = -1
        self._wanted = -1
        self._problem = ""
        self._gone = ""
        self._answered = threading.Condition()
        self._ready: queue.SimpleQueue[tuple[int, dict[str, Any]]] = queue.SimpleQueue()
        threading.Thread(target=self._send, name="peer-memory", daemon=True).start()
        threading.Thread(target=self._listen, name="peer-memory-held", daemon=True).start()

    def before_change(self, *_: object) -> None:
        """Order later changes of the tensors after the copies: a hook of the optimizer on GPUs."""
        for staged in self._staged:
            staged.before_change()

    def take(self, stamp: Stamp, tensors: Groups, small: Mapping[str, bytes]) -> None:
        """Copy the state; sending it goes on in the background. `small`: files besides the tensors."""
        slot, self._next = self._next, 1 - self._next
        self._tell({"writing": slot})
        staged = self._staged[slot]
        staged.stage(tensors)
        files = staged.places()
        end = self._planned
        for name, content in small.items():
            self._maps[slot][end : end + len(content)] = content
            files[name] = (end, len(content))
            end += len(content)
        self._wanted = stamp.step
        about = {"slot": slot, "stamp": stamp_to_json(stamp), "files": files}
        if self._device.type == "cuda":
            self._ready.put((slot, about))
        else:
            self._tell({"snapshot": about})

    def wait_held(self, timeout_s: float) -> str:
        """Wait until two nodes have the last snapshot; return why they have not, or an empty text."""
        limit = time.monotonic() + timeout_s
        with self._answered:
            while self._held < self._wanted and not (self._problem or self._gone):
                if not self._answered.wait(max(0.0, limit - time.monotonic())):
                    return f"no answer within {timeout_s:.0f} s"
            problem, self._problem = self._problem or self._gone, ""
            return problem

    @property
    def held(self) -> int:
        """The newest step whose state two nodes have; -1 for none."""
        return self._held

    def _send(self) -> None:
        """On a GPU: announce a snapshot once its copy is done."""
        while True:
            slot, about = self._ready.get()
            self._staged[slot].wait()
            self._tell({"snapshot": about})

    def _tell(self, message: Mapping[str, Any]) -> None:
        """Send to the keeper; that it is gone is found by `wait_held`."""
        with self._sending, suppress(OSError):
            wire.send(self._connection, message)

    def _listen(self) -> None:
        try:
            while True:
                answer = wire.receive(self._connection)
                with self._answered:
                    if not answer["problem"]:
                        self._held = int(answer["held"])
                    self._problem = answer["problem"]
                    self._answered.notify_all()
        except (OSError, KeyError):
            with self._answered:
                self._gone = "the keeper of this node is gone"
                self._answered.notify_all()


def connect() -> socket.socket | None:
    """Connect to this node's keeper; None without one."""
    path = os.environ.get(PEER_MEMORY_ENV)
    if not path:
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        return None
    return connection
