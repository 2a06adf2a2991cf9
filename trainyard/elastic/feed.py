"""The state of a member for a group that joins, sent while all train.

The member copies its state between two steps, and a thread sends the copy. The totals of the steps that are
taken meanwhile follow, and the newcomer takes these steps with them. When it is one step behind at most, the next
view has it as its last member, and the feed ends with the number of that view. Each rank feeds its counterpart.
"""

from __future__ import annotations

import contextlib
import io
import queue
import socket
import struct
import threading
from collections.abc import Mapping
from typing import Any, Final, Protocol

import torch
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_map

from trainyard.elastic.exchange import Lost
from trainyard.elastic.leaves import local
from trainyard.elastic.links import connect
from trainyard.elastic.views import Member

_HEADER: Final = struct.Struct("!cqq")
"""Kind of a frame, a step or view, and the bytes that follow."""
_ACK: Final = struct.Struct("!q")
_STATE, _TOTAL, _END, _ALIVE = b"s", b"t", b"e", b"."
_ALIVE_S: Final = 0.3
CONNECT_S: Final = 5.0
_LEAST_BYTES: Final = 256 * 1024**2
"""Totals that wait to be sent may take as many bytes as the state, or this if it is more."""

State = dict[str, Any]
"""States of objects by name."""


class Stateful(Protocol):
    """An object with a state: a model, an optimizer, a learning rate schedule."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> object: ...


class Feed(threading.Thread):
    """Sends this rank's state and totals to one newcomer."""

    def __init__(self, member: Member, rank: int, token: bytes, state: State, step: int) -> None:
        super().__init__(name="elastic-feed", daemon=True)
        self.member = member
        self.failed = False
        self.applied = -1
        """The last step that the newcomer has taken."""
        self._address, self._token = member.links[rank], token
        self._state, self._step = state, step
        self._frames: queue.SimpleQueue[tuple[bytes, int, torch.Tensor | None]] = (
            queue.SimpleQueue()
        )
        self._waiting, self._limit = 0, 0
        self.start()

    def add(self, step: int, total: torch.Tensor) -> None:
        if self._limit and self._waiting > self._limit:
            self.failed = True  # it falls behind: it begins again
        if not self.failed:
            copy = total.clone()
            self._waiting += copy.nbytes
            self._frames.put((_TOTAL, step, copy))

    def end(self, view: int) -> None:
        self._frames.put((_END, view, None))

    def run(self) -> None:
        """Send until the end, or until the newcomer is lost."""
        try:
            with connect(self._address, self._token, CONNECT_S) as connection:
                threading.Thread(target=self._listen, args=(connection,), daemon=True).start()
                name = self.member.id.encode()
                connection.sendall(_HEADER.pack(_ALIVE, 0, len(name)) + name)
                content = io.BytesIO()
                torch.save(self._state, content)
                self._state = {}
                self._limit = max(_LEAST_BYTES, content.tell())
                _send(connection, _STATE, self._step, content.getbuffer())
                del content
                self._follow(connection)
        except OSError:
            self.failed = True

    def _follow(self, connection: socket.socket) -> None:
        while not self.failed:
            try:
                kind, number, total = self._frames.get(timeout=_ALIVE_S)
            except queue.Empty:
                _send(connection, _ALIVE, 0)
                continue
            if total is None:
                _send(connection, kind, number)
                return
            _send(connection, kind, number, total.numpy().tobytes())
            self._waiting -= total.nbytes

    def _listen(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection.makefile("rb") as stream:
            while len(data := stream.read(_ACK.size)) == _ACK.size:
                (self.applied,) = _ACK.unpack(data)


def _send(
    connection: socket.socket, kind: bytes, number: int, payload: memoryview | bytes = b""
) -> None:
    connection.sendall(_HEADER.pack(kind, number, len(payload)))
    connection.sendall(payload)


class Intake:
    """What a member sends to this rank."""

    def __init__(self, connection: socket.socket, silent_after_s: float) -> None:
        connection.settimeout(silent_after_s)
        self._connection = connection
        self._stream = connection.makefile("rb")

    def name(self) -> str:
        """Return for which newcomer it is meant. Raises Lost."""
        _, _, size = self._header()
        return bytes(self._read(min(size, 64))).decode(errors="replace")

    def state(self) -> tuple[State, int]:
        """Return the state, and the step after which it is taken. Raises Lost."""
        _, step, size = self._next()
        content = io.BytesIO(self._read(size))
        # Tensors and plain values only: nothing that comes over the network is unpickled freely.
        state: State = torch.load(content, weights_only=True)
        self.taken(step)
        return state, step

    def total(self, dtype: torch.dtype) -> tuple[int, torch.Tensor | None]:
        """Return a step and its total, or a view in which this group takes part and None. Raises Lost."""
        kind, number, size = self._next()
        if kind == _END:
            return number, None
        return number, torch.frombuffer(self._read(size), dtype=dtype)

    def taken(self, step: int) -> None:
        with contextlib.suppress(OSError):
            self._connection.sendall(_ACK.pack(step))

    def close(self) -> None:
        self._stream.close()
        self._connection.close()

    def _next(self) -> tuple[bytes, int, int]:
        while True:
            kind, number, size = self._header()
            if kind != _ALIVE:
                return kind, number, size

    def _header(self) -> tuple[bytes, int, int]:
        kind, number, size = _HEADER.unpack(self._read(_HEADER.size))
        return kind, number, size

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        view, first = memoryview(data), 0
        try:
            while first < size:
                count = self._stream.readinto(view[first:])
                if not count:
                    raise Lost("the member that sends the state has ended")
                first += count
        except OSError as error:
            raise Lost(f"the member that sends the state: {error}") from None
        return data


def snapshot(objects: Mapping[str, Stateful]) -> State:
    """Return a copy of this rank's part of the states, on the host."""

    def copy(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        part = local(value).detach()
        return part.clone() if part.device.type == "cpu" else part.cpu()

    states = {name: one.state_dict() for name, one in objects.items()}
    return tree_map(copy, states)  # type: ignore[no-any-return]


def restore(objects: Mapping[str, Stateful], states: State) -> None:
    """Load what `snapshot` gave on this rank's counterpart, whose tensors are divided in the same way."""
    for name, one in objects.items():
        state = states[name]
        if isinstance(one, torch.nn.Module):
            for key, own in one.state_dict().items():
                state[key] = _divided_as(own, state[key])
        elif isinstance(one, torch.optim.Optimizer):
            parameters = [p for group in one.param_groups for p in group["params"]]
            for number, values in state["state"].items():
                for key, value in values.items():
                    values[key] = _divided_as(parameters[number], value)
        one.load_state_dict(state)


def _divided_as(own: Any, value: Any) -> Any:
    """Return the value, as a part of a distributed tensor where `own` is one."""
    if not isinstance(own, DTensor) or not isinstance(value, torch.Tensor) or not value.dim():
        return value
    return DTensor.from_local(
        value.to(own.device),
        own.device_mesh,
        own.placements,
        run_check=False,
        shape=own.shape,
        stride=own.stride(),
    )
