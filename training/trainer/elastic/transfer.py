"""State for a joining group, from the memory of the leader while all others train.

The leader copies its state between two steps and sends the copy in a thread. The reduced gradient of each step
that the others take meanwhile follows, and the joining group applies it: its optimizer sees the same bits, so it
is where the others are once it has applied the last one. Only then does the membership change.
"""

from __future__ import annotations

import json
import queue
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from training.checkpoint.contents import Progress
from training.trainer.elastic.exchange import ADOPT, STEP, Note, buffer_of

_LENGTH: Final = struct.Struct("!Q")
_PENDING_STEPS: Final = 64
"""A joining group that falls behind by more has to begin again: each step holds a gradient in memory."""

Tensors = Mapping[str, Mapping[str, torch.Tensor]]


class JoinFailed(Exception):
    """The leader is gone, or does not answer."""


@dataclass(frozen=True)
class AppliedStep:
    """The gradient of one step after clipping, and what the others know of the step."""

    note: Note
    flat: torch.Tensor


class Donor:
    """Sends the state to one joining group, in a thread."""

    def __init__(
        self, connection: socket.socket, peer: str, progress: Progress, tensors: Tensors
    ) -> None:
        """Copies the tensors before it returns."""
        self.peer = peer
        self.failed = False
        self._acknowledged = -1
        self._connection = connection
        self._queue: queue.Queue[AppliedStep | Note | None] = queue.Queue()
        copies = {
            f"{group}/{name}": tensor.detach().cpu().clone()
            for group, named in tensors.items()
            for name, tensor in named.items()
        }
        self._thread = threading.Thread(
            target=self._run, args=(progress, copies), name="donor", daemon=True
        )
        self._thread.start()

    def offer(self, step: AppliedStep) -> None:
        """Send a step that was applied since the copy."""
        if self._queue.qsize() > _PENDING_STEPS:
            self.close()
        else:
            self._queue.put(AppliedStep(step.note, step.flat.detach().cpu().clone()))

    def has_reached(self, step: int) -> bool:
        """Return whether the joining group has applied this step."""
        return not self.failed and self._acknowledged >= step

    def adopt(self, view: int) -> None:
        """Let the joining group take part from this view on."""
        self._queue.put(Note(kind=ADOPT, view=view, step=0))

    def close(self) -> None:
        """End the transfer; a joining group that is not a member yet begins again."""
        self.failed = True
        self._queue.put(None)

    def _run(self, progress: Progress, copies: Mapping[str, torch.Tensor]) -> None:
        try:
            with self._connection:
                self._send_state(progress, copies)
                while (item := self._queue.get()) is not None:
                    if isinstance(item, Note):
                        self._connection.sendall(item.pack())
                        return
                    self._connection.sendall(item.note.pack())
                    self._connection.sendall(buffer_of(item.flat))
                    self._acknowledged = _read_number(self._connection)
        except OSError:
            pass
        finally:
            self.failed = True

    def _send_state(self, progress: Progress, copies: Mapping[str, torch.Tensor]) -> None:
        about = {
            "progress": json.loads(progress.to_json()),
            "tensors": [[name, list(tensor.shape)] for name, tensor in copies.items()],
        }
        content = json.dumps(about).encode()
        self._connection.sendall(_LENGTH.pack(len(content)) + content)
        for tensor in copies.values():
            self._connection.sendall(buffer_of(tensor.reshape(-1)))
        self._acknowledged = _read_number(self._connection)


def receive_state(connection: socket.socket, tensors: Tensors) -> Progress:
    """Fill the tensors with the leader's state; return its progress. Raises JoinFailed."""
    named = {f"{group}/{name}": t for group, inner in tensors.items() for name, t in inner.items()}
    try:
        about: Any = json.loads(_read(connection, _read_number(connection)))
        progress = Progress.from_json(json.dumps(about["progress"]).encode())
        mine = [[name, list(tensor.shape)] for name, tensor in named.items()]
        if about["tensors"] != mine:
            raise JoinFailed("the leader trains another model")
        with torch.no_grad():
            for tensor in named.values():
                numbers = torch.empty(tensor.numel(), dtype=tensor.dtype)
                _read_into(connection, buffer_of(numbers))
                tensor.copy_(numbers.reshape(tensor.shape))
        connection.sendall(_LENGTH.pack(progress.step))
    except (OSError, ValueError) as error:
        raise JoinFailed(str(error)) from None
    return progress


def follow(
    connection: socket.socket, length: int, apply: Callable[[AppliedStep], None]
) -> int | None:
    """Apply the leader's steps until it calls this group into a view; return the view's number.

    None when the leader is gone first.
    """
    try:
        while True:
            note = Note.unpack(_read(connection, Note.SIZE))
            if note.kind == ADOPT:
                return note.view
            assert note.kind == STEP
            flat = torch.empty(length)
            _read_into(connection, buffer_of(flat))
            apply(AppliedStep(note, flat))
            connection.sendall(_LENGTH.pack(note.step))
    except OSError:
        return None


def _read_number(connection: socket.socket) -> int:
    return int(_LENGTH.unpack(_read(connection, _LENGTH.size))[0])


def _read(connection: socket.socket, size: int) -> bytearray:
    content = bytearray(size)
    _read_into(connection, memoryview(content))
    return content


def _read_into(connection: socket.socket, buffer: memoryview) -> None:
    while buffer:
        got = connection.recv_into(buffer)
        if not got:
            raise ConnectionError("the connection was closed")
        buffer = buffer[got:]
