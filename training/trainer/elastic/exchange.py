"""Messages of a round and the all-reduce in the order of the tree.

Each round begins with a note from every member to every other one. A reduction cuts the sum into one shard per
member: a member gets all subtree sums of its shard, adds them in the order of the tree, and sends the sum to all.
With one subtree per member these are the bytes of a reduce-scatter and an all-gather.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import torch

from training.trainer.elastic.mesh import Mesh
from training.trainer.elastic.reduction import (
    Node,
    leaf_range,
    nodes_of,
    shard_bounds,
    tree_sum,
)

STEP, IDLE, SYNC, EVALUATION, FINAL, ADOPT = range(1, 7)
"""Kinds of rounds and messages."""
LEAVE: Final = 1
"""Flag: this member leaves after the round."""
STOP: Final = 2
"""Flag: the whole run stops after the round."""


@dataclass(frozen=True, kw_only=True)
class Note:
    """What a member says to the others in a round."""

    kind: int
    view: int
    step: int
    """In a step's round the step that is computed, elsewhere the last one applied."""
    flags: int = 0
    joiner: str = ""
    """Id of the member that joins after this round; set by the leader."""
    evaluated_step: int = 0
    evaluation_loss: float = math.nan
    loss: float = math.nan
    grad_norm: float = math.nan

    _FORMAT: ClassVar = struct.Struct("!BIQB16sQddd")
    SIZE: ClassVar[int] = _FORMAT.size

    def pack(self) -> bytes:
        """Return the bytes of the note."""
        return self._FORMAT.pack(
            self.kind,
            self.view,
            self.step,
            self.flags,
            self.joiner.encode(),
            self.evaluated_step,
            self.evaluation_loss,
            self.loss,
            self.grad_norm,
        )

    @classmethod
    def unpack(cls, content: bytes | bytearray) -> Note:
        """Return the note of these bytes."""
        kind, view, step, flags, joiner, *rest = cls._FORMAT.unpack(content)
        return cls(
            kind=kind,
            view=view,
            step=step,
            flags=flags,
            joiner=joiner.rstrip(b"\0").decode(),
            evaluated_step=rest[0],
            evaluation_loss=rest[1],
            loss=rest[2],
            grad_norm=rest[3],
        )


def buffer_of(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a contiguous CPU tensor."""
    if not tensor.numel():
        return memoryview(b"")
    array: Any = tensor.numpy()
    return memoryview(array).cast("B")


class Exchange:
    """The rounds of one view, and the buffers for its reductions."""

    def __init__(self, mesh: Mesh, own_id: str, workers: int, length: int) -> None:
        """`length`: elements of a sum."""
        self.mesh = mesh
        self._own = own_id
        self._workers = workers
        members = [member.id for member in mesh.view.members]
        bounds = shard_bounds(length, len(members))
        self.leaves = leaf_range(members.index(own_id), len(members), workers)
        self._nodes = {
            member: nodes_of(leaf_range(position, len(members), workers))
            for position, member in enumerate(members)
        }
        self._bounds = dict(zip(members, bounds, strict=True))
        begin, end = self._bounds[own_id]
        self.rows: dict[Node, torch.Tensor] = {
            node: torch.empty(length) for node in self._nodes[own_id]
        }
        """This member's subtree sums: to be filled before `reduce`."""
        self._received = {
            member: [torch.empty(end - begin) for _ in self._nodes[member]]
            for member in mesh.others
        }

    def notes(
        self, note: Note, timeout_s: float, payload: Mapping[str, list[memoryview]] | None = None
    ) -> dict[str, Note]:
        """Exchange notes, and what follows them; return those of all members. Raises MemberLost.

        `payload` holds this member's shards to send; the received ones come into `_received`.
        """
        mesh, content = self.mesh, memoryview(note.pack())
        arrived = {peer: bytearray(Note.SIZE) for peer in mesh.others}
        outgoing = {peer: [content, *(payload[peer] if payload else ())] for peer in mesh.others}
        incoming = {
            peer: [
                memoryview(arrived[peer]),
                *(map(buffer_of, self._received[peer]) if payload else ()),
            ]
            for peer in mesh.others
        }
        mesh.swap(outgoing, incoming, timeout_s)
        found = {peer: Note.unpack(content) for peer, content in arrived.items()}
        for peer, other in found.items():
            if (other.kind, other.view) != (note.kind, note.view):
                raise RuntimeError(f"group {peer} is in another round: {other}, here {note}")
        return found | {self._own: note}

    def reduce(self, note: Note, out: torch.Tensor, timeout_s: float) -> dict[str, Note]:
        """Sum the rows of all members into `out`, bit for bit the same on each. Raises MemberLost."""
        others = self.mesh.others
        payload = {
            peer: [buffer_of(row[slice(*self._bounds[peer])]) for row in self.rows.values()]
            for peer in others
        }
        found = self.notes(note, timeout_s, payload)
        begin, end = self._bounds[self._own]
        parts = {node: row[begin:end] for node, row in self.rows.items()}
        for peer in others:
            parts |= zip(self._nodes[peer], self._received[peer], strict=True)
        tree_sum(parts, (0, self._workers), out[begin:end])
        own = buffer_of(out[begin:end])
        self.mesh.swap(
            {peer: [own] for peer in others},
            {peer: [buffer_of(out[slice(*self._bounds[peer])])] for peer in others},
            timeout_s,
        )
        return found

    def gather(self, note: Note, values: torch.Tensor, timeout_s: float) -> dict[str, torch.Tensor]:
        """Return the float64 values of all members, as many from each. Raises MemberLost."""
        self.notes(note, timeout_s)
        found = {peer: torch.empty_like(values) for peer in self.mesh.others}
        self.mesh.swap(
            {peer: [buffer_of(values)] for peer in found},
            {peer: [buffer_of(tensor)] for peer, tensor in found.items()},
            timeout_s,
        )
        return found | {self._own: values}
