"""State for a group that joins, from the memory of a member while all others train.

Each rank of the member copies its part of the state between two steps and sends the copy, in a thread, to the
rank of the same number. The update of each step that the others take meanwhile follows, and the joining group
applies it: its optimizer sees the same bits, so it is where the others are once it has applied the last one. Only
then does the membership change.
"""

from __future__ import annotations

import contextlib
import json
import queue
import selectors
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from training.checkpoint.contents import Progress
from training.config_errors import ConfigError, ConfigIssue
from training.trainer.elastic.exchange import ADOPT, Note, buffer_of
from training.trainer.elastic.links import read_exactly
from trainyard.tensors.local_tensors import local_data

_LENGTH: Final = struct.Struct("!Q")
_PENDING_BYTES: Final = 256 << 20
"""Updates that wait to be sent may take so much memory, or as much as the state if that is larger.

A group that can follow at all receives an update in less than a step. The updates that come while it receives the
state are then no more bytes than the state.
"""
_LOOK_S: Final = 0.5
"""Pause between looks at what else may have happened while nothing comes."""

Tensors = Mapping[str, Mapping[str, torch.Tensor]]


class TransferLost(Exception):
    """The member that sends the state is gone, or does not answer."""


@dataclass(frozen=True)
class AppliedStep:
    """One rank's share of the gradients of a step after clipping, and what the others know of the step."""

    note: Note
    share: torch.Tensor
    """The last element has no meaning."""


def local_tensors(tensors: Tensors) -> Tensors:
    """Return this rank's part of each tensor."""
    return {
        group: {name: local_data(tensor) for name, tensor in named.items()}
        for group, named in tensors.items()
    }


Copy = dict[str, torch.Tensor]
"""Tensors on the host, by group and name."""


class CopyMemory:
    """Host memory for a copy of one rank's state, which transfers use in turn.

    The first touch of memory costs far more than a copy: a thread does it before the first transfer begins.
    """

    def __init__(self) -> None:
        self._free: Copy | None = None
        self._allocated = False
        """Whether the memory is there, though a transfer may use it."""
        self._thread: threading.Thread | None = None

    @property
    def ready(self) -> bool:
        """Whether the memory is there, and no transfer uses it."""
        return self._free is not None

    def prepare(self, tensors: Tensors) -> None:
        """Allocate the memory in a thread, unless that is done or under way."""
        if self._allocated or (self._thread and self._thread.is_alive()):
            return
        forms = {name: (tensor.shape, tensor.dtype) for name, tensor in _named(tensors).items()}

        def allocate() -> None:
            made = {name: torch.empty(shape, dtype=kind) for name, (shape, kind) in forms.items()}
            for tensor in made.values():
                tensor.zero_()
            self._allocated = True
            self.give_back(made)

        self._thread = threading.Thread(target=allocate, name="copy-memory", daemon=True)
        self._thread.start()

    @torch.no_grad()
    def copy(self, tensors: Tensors) -> Copy:
        """Return a copy of the tensors in the memory, which has to be `ready`."""
        copies, self._free = self._free, None
        assert copies is not None
        for name, tensor in _named(tensors).items():
            copies[name].copy_(tensor)
        return copies

    def give_back(self, copies: Copy) -> None:
        """Let the next transfer use the memory."""
        self._free = copies


class Donor:
    """Sends the state of one rank to its counterpart in a joining group, in a thread."""

    def __init__(
        self,
        connection: socket.socket,
        peer: str,
        progress: Progress,
        tensors: Tensors,
        about: Mapping[str, Any],
        memory: CopyMemory,
    ) -> None:
        """Copy the tensors before it returns. `about`: what must be equal in both groups."""
        self.peer = peer
        self.failed = False
        self.acknowledged = -1
        """Last step that the joining group has applied; -1 before it has the state."""
        self._connection = connection
        self._memory = memory
        self._queue: queue.Queue[AppliedStep | Note | None] = queue.Queue()
        copies = memory.copy(tensors)
        self._limit = max(_PENDING_BYTES, sum(tensor.nbytes for tensor in copies.values()))
        header = {
            "about": about,
            "progress": json.loads(progress.to_json()),
            "tensors": [[name, list(tensor.shape)] for name, tensor in copies.items()],
        }
        self._thread = threading.Thread(
            target=self._run, args=(header, copies), name="donor", daemon=True
        )
        self._thread.start()

    def offer(self, step: AppliedStep) -> None:
        """Send a step that was applied since the copy; its tensor must not change any more."""
        if self.failed:
            return
        if (self._queue.qsize() + 1) * step.share.nbytes > self._limit:
            print(
                f"group {self.peer} joins too slowly: {self._queue.qsize()} updates wait to be sent to it; it "
                "begins again",
                file=sys.stderr,
                flush=True,
            )
            self.close()
        else:
            self._queue.put(step)

    def adopt(self, view: int) -> None:
        """Let the joining group take part from this view on."""
        self._queue.put(Note(kind=ADOPT, view=view, step=0))

    def close(self) -> None:
        """End the transfer; a joining group that is not a member yet begins again."""
        self.failed = True
        with self._queue.mutex:
            self._queue.queue.clear()
        self._queue.put(None)
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _run(self, header: Mapping[str, Any], copies: Copy) -> None:
        try:
            with self._connection:
                try:
                    self._send_state(header, copies)
                finally:
                    self._memory.give_back(copies)
                while (item := self._queue.get()) is not None:
                    if isinstance(item, Note):
                        self._connection.sendall(item.pack())
                        return
                    self._connection.sendall(item.note.pack())
                    self._connection.sendall(buffer_of(item.share))
                    self.acknowledged = self._read_number()
        except OSError:
            pass
        finally:
            self.failed = True

    def _send_state(self, header: Mapping[str, Any], copies: Copy) -> None:
        content = json.dumps(header).encode()
        self._connection.sendall(_LENGTH.pack(len(content)) + content)
        for tensor in copies.values():
            self._connection.sendall(buffer_of(tensor.reshape(-1)))
        self.acknowledged = self._read_number()

    def _read_number(self) -> int:
        return int(_LENGTH.unpack(read_exactly(self._connection, _LENGTH.size))[0])


class Stream:
    """The receiving end: the state, then updates, then the view in which this group takes part."""

    def __init__(
        self,
        connection: socket.socket,
        watched: list[socket.socket],
        look: Callable[[], None],
        timeout_s: float,
    ) -> None:
        """`look` is called when one of `watched` can be read and every half second; it may raise."""
        self._connection = connection
        self._connection.setblocking(False)
        self._watched = watched
        self._look = look
        self._timeout_s = timeout_s

    def receive_state(self, tensors: Tensors, about: Mapping[str, Any]) -> Progress:
        """Fill the tensors with the sender's state; return its progress.

        Raises TransferLost, and ConfigError when the sender's `about` or its tensors are others.
        """
        named = _named(tensors)
        header = json.loads(self._read(_LENGTH.unpack(self._read(_LENGTH.size))[0]))
        require_same(header["about"], about)
        mine = [[name, list(tensor.shape)] for name, tensor in named.items()]
        if header["tensors"] != mine:
            raise ConfigError([_other_group("model", "another model's", "this group's")])
        with torch.no_grad():
            for tensor in named.values():
                numbers = torch.empty(tensor.numel(), dtype=tensor.dtype)
                self._fill(buffer_of(numbers))
                tensor.copy_(numbers.reshape(tensor.shape))
        return Progress.from_json(json.dumps(header["progress"]).encode())

    def receive_step(self, length: int, step: int) -> AppliedStep | int:
        """Return the update of this step, or the number of the view that has this group. Raises TransferLost."""
        note = Note.unpack(self._read(Note.SIZE, patient=True))
        if note.kind == ADOPT:
            return note.view
        if note.step != step:
            raise TransferLost(f"step {note.step} came, not {step}")
        share = torch.empty(length)
        self._fill(buffer_of(share))
        return AppliedStep(note, share)

    def acknowledge(self, step: int) -> None:
        """Say that this step is applied."""
        try:
            self._connection.send(_LENGTH.pack(step))
        except OSError as error:
            raise TransferLost(str(error)) from None

    def _read(self, size: int, *, patient: bool = False) -> bytearray:
        content = bytearray(size)
        self._fill(memoryview(content), patient=patient)
        return content

    def _fill(self, buffer: memoryview, *, patient: bool = False) -> None:
        """Fill a buffer. `patient`: however long it takes until its first byte comes."""
        limit = time.monotonic() + self._timeout_s
        while buffer:
            try:
                got = self._connection.recv_into(buffer)
            except BlockingIOError:
                if not patient and time.monotonic() > limit:
                    raise TransferLost("nothing came") from None
                self._wait()
                continue
            except OSError as error:
                raise TransferLost(str(error)) from None
            if not got:
                raise TransferLost("the connection was closed")
            buffer, patient = buffer[got:], False
            limit = time.monotonic() + self._timeout_s

    def _wait(self) -> None:
        with selectors.DefaultSelector() as selector:
            for source in (self._connection, *self._watched):
                selector.register(source, selectors.EVENT_READ)
            ready = [key.fileobj for key, _ in selector.select(_LOOK_S)]
        if ready != [self._connection]:
            self._look()


def _named(tensors: Tensors) -> Copy:
    return {
        f"{group}/{name}": tensor
        for group, part in tensors.items()
        for name, tensor in part.items()
    }


def require_same(theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    """Raise ConfigError with each setting of this group that the others have otherwise."""
    issues = [
        _other_group(path, theirs.get(path, "absent"), mine.get(path, "absent"))
        for path in sorted(mine.keys() | theirs.keys())
        if theirs.get(path) != mine.get(path)
    ]
    if issues:
        raise ConfigError(issues)


def _other_group(path: str, theirs: Any, mine: Any) -> ConfigIssue:
    return ConfigIssue(
        path=path,
        problem=f"{mine} in this group, {theirs} in the others",
        valid="must be the same in all groups of a run",
        action="start this group like the others, or use another --run-dir",
        code="conflict",
    )
