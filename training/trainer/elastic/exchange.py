"""Messages of a round and the all-reduce in the order of the tree.

Each round begins with a note from every member to every other one. A reduction cuts the sum into one shard per
member: a member gets all subtree sums of its shard, adds them in the order of the tree, and sends the sum to all.
With one subtree per member these are the bytes of a reduce-scatter and an all-gather.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

import torch

from training.trainer.elastic.links import MemberLost
from training.trainer.elastic.mesh import Buffers, Mesh
from training.trainer.elastic.ranks import GroupRanks, merge_lost
from trainyard.elastic.tree import (
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
COMPARE: Final = 4
"""Flag: the state after the round is compared: this member is about to save it, to give it away, or to leave."""
READY_GROUPS: Final = 3
ID_SIZE: Final = 16
_SIZE: Final = struct.Struct("!Q")


@dataclass(frozen=True, kw_only=True)
class Note:
    """What a member says to the others in a round."""

    kind: int
    view: int
    step: int
    """In a step's round the step that is computed, elsewhere the last one applied."""
    flags: int = 0
    ready: tuple[str, ...] = ()
    """Ids of groups that have the state, and get each step from this member; `READY_GROUPS` at most."""
    kept: int = 0
    """How many updates up to `step` this member can give to others."""
    evaluated_step: int = 0
    evaluation_loss: float = math.nan
    loss: float = math.nan
    grad_norm: float = math.nan

    _FORMAT: ClassVar = struct.Struct(f"!BIQB{ID_SIZE * READY_GROUPS}sBQddd")
    SIZE: ClassVar[int] = _FORMAT.size

    def pack(self) -> bytes:
        """Return the bytes of the note."""
        return self._FORMAT.pack(
            self.kind,
            self.view,
            self.step,
            self.flags,
            "".join(self.ready).encode(),
            self.kept,
            self.evaluated_step,
            self.evaluation_loss,
            self.loss,
            self.grad_norm,
        )

    @classmethod
    def unpack(cls, content: bytes | bytearray) -> Note:
        """Return the note of these bytes."""
        kind, view, step, flags, packed, *rest = cls._FORMAT.unpack(content)
        ids = packed.rstrip(b"\0").decode()
        return cls(
            kind=kind,
            view=view,
            step=step,
            flags=flags,
            ready=tuple(ids[i : i + ID_SIZE] for i in range(0, len(ids), ID_SIZE)),
            kept=rest[0],
            evaluated_step=rest[1],
            evaluation_loss=rest[2],
            loss=rest[3],
            grad_norm=rest[4],
        )


def buffer_of(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a contiguous CPU tensor."""
    if not tensor.numel():
        return memoryview(b"")
    array: Any = tensor.numpy()
    return memoryview(array).cast("B")


class Agenda(Protocol):
    """What the ranks of a group decide along with each round."""

    def report(self) -> dict[str, Any]:
        """Return what this rank knows, as a JSON value."""

    def decide(self, reports: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the orders for all ranks from their reports, as a JSON value; called on rank 0."""


class Exchange:
    """The rounds of one view, and the buffers for its reductions.

    Rank R of a group exchanges with rank R of the others. A round counts once all ranks of a group have done their
    part: then it returns the notes that rank 0 received on all of them, else it raises MemberLost on all.
    """

    def __init__(
        self, mesh: Mesh, ranks: GroupRanks, own_id: str, workers: int, length: int, agenda: Agenda
    ) -> None:
        """`length`: elements of this rank's share of a sum."""
        self.mesh = mesh
        self.orders: dict[str, Any] = {}
        """What the last round decided."""
        self._ranks = ranks
        self._agenda = agenda
        self.own_id = own_id
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

    def notes(self, note: Note, timeout_s: float) -> dict[str, Note]:
        """Exchange notes; return those of all members. Raises MemberLost."""
        return self._settle(lambda: self._swap_notes(note, timeout_s), timeout_s)

    def reduce(self, note: Note, out: torch.Tensor, timeout_s: float) -> dict[str, Note]:
        """Sum the rows of all members into `out`, bit for bit the same on each; return their notes.

        Raises MemberLost.
        """
        return self._settle(lambda: self._reduce(note, out, timeout_s), timeout_s)

    def gather(self, note: Note, values: torch.Tensor, timeout_s: float) -> dict[str, torch.Tensor]:
        """Return the float64 values of all members, as many from each. Raises MemberLost."""
        gathered = {peer: torch.empty_like(values) for peer in self.mesh.others}

        def work() -> dict[str, Note]:
            found = self._swap_notes(note, timeout_s)
            self.mesh.swap(
                {peer: [buffer_of(values)] for peer in gathered},
                {peer: [buffer_of(tensor)] for peer, tensor in gathered.items()},
                timeout_s,
            )
            return found

        self._settle(work, timeout_s)
        return gathered | {self.own_id: values}

    def gather_bytes(self, content: bytes, timeout_s: float) -> list[bytes]:
        """Return what this rank's counterparts and it pass, in the order of the members.

        Other ranks of this group take no part: it is no round. Raises MemberLost.
        """
        sizes = {peer: bytearray(_SIZE.size) for peer in self.mesh.others}
        own = [memoryview(_SIZE.pack(len(content)))]
        self.mesh.swap(
            dict.fromkeys(sizes, own), {p: [memoryview(s)] for p, s in sizes.items()}, timeout_s
        )
        found = {peer: bytearray(_SIZE.unpack(size)[0]) for peer, size in sizes.items()}
        self.mesh.swap(
            {p: [memoryview(content)] for p in found},
            {p: [memoryview(c)] for p, c in found.items()},
            timeout_s,
        )
        everyone = {**found, self.own_id: content}
        return [bytes(everyone[member.id]) for member in self.mesh.view.members]

    def swap(self, outgoing: Buffers, incoming: Buffers, timeout_s: float) -> None:
        """Send and fill buffers, by member. Raises MemberLost."""

        def work() -> dict[str, Note]:
            self.mesh.swap(outgoing, incoming, timeout_s)
            return {}

        self._settle(work, timeout_s)

    def _settle(self, work: Callable[[], dict[str, Note]], timeout_s: float) -> dict[str, Note]:
        """Do this rank's part of a round, and find out whether all ranks of the group did theirs."""
        notes: dict[str, Note] = {}
        lost: list[str] | None = None
        try:
            notes = work()
        except MemberLost as error:
            lost = sorted(error.lost)

        def decide(reports: list[Any]) -> Any:
            all_lost = merge_lost([report[0] for report in reports])
            packed = {} if self._ranks.alone else _pack(notes)
            return all_lost, packed, self._agenda.decide([report[1] for report in reports])

        all_lost, packed, self.orders = self._ranks.agree(
            (lost, self._agenda.report()), decide, failed=lost is not None, timeout_s=2 * timeout_s
        )
        if all_lost is not None:
            raise MemberLost(set(all_lost))
        return notes if self._ranks.alone else _unpack(packed)

    def _swap_notes(
        self, note: Note, timeout_s: float, payload: Buffers | None = None
    ) -> dict[str, Note]:
        """Exchange notes, and what follows them; return those of all members.

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
        return found | {self.own_id: note}

    def _reduce(self, note: Note, out: torch.Tensor, timeout_s: float) -> dict[str, Note]:
        others = self.mesh.others
        payload = {
            peer: [buffer_of(row[slice(*self._bounds[peer])]) for row in self.rows.values()]
            for peer in others
        }
        found = self._swap_notes(note, timeout_s, payload)
        begin, end = self._bounds[self.own_id]
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


def _pack(notes: dict[str, Note]) -> dict[str, str]:
    return {peer: note.pack().hex() for peer, note in notes.items()}


def _unpack(packed: dict[str, str]) -> dict[str, Note]:
    return {peer: Note.unpack(bytes.fromhex(content)) for peer, content in packed.items()}
