"""Where replicas differ: the tensors, and single numbers in them. All peers call the same functions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

from training.trainer.replicas import disputes
from training.trainer.replicas.checksum import BLOCK, block_checksums
from training.trainer.replicas.disputes import Element
from training.trainer.replicas.peers import Peers

_TENSORS: Final = 4
_BLOCKS: Final = 4
_ELEMENTS: Final = 64


@dataclass(frozen=True)
class Part:
    """One tensor that is compared."""

    group: str
    name: str
    local: torch.Tensor

    @property
    def path(self) -> str:
        """Its name among those of all groups."""
        return f"{self.group}/{self.name}"


def differing(
    peers: Peers, parts: Sequence[Part], own: torch.Tensor, members: Sequence[int]
) -> list[str]:
    """Return the tensors that differ between the members; ranks of other parts of the model follow.

    `own`: the checksum of each part.
    """
    found = peers.gather(own.numpy().tobytes())
    differs = _unequal([_integers(found[rank]) for rank in members])
    mine = [parts[number].path for number in differs.nonzero().flatten().tolist()]
    # The names of the members' tensors, which are not those of other stages.
    texts = peers.gather(json.dumps(mine if peers.own in members else []).encode())
    shared: list[str] = json.loads(texts[members[0]])
    return shared


def differing_elements(
    peers: Peers, parts: Sequence[Part], names: Sequence[str], rivals: Sequence[int]
) -> list[Element]:
    """Return numbers of these tensors on which the rivals differ, the same on every rank."""
    known = {part.path: part for part in parts}
    found: list[Element] = []
    for name in names[:_TENSORS]:
        part = known.get(name)
        own = block_checksums(part.local) if part else torch.zeros(0, dtype=torch.int64)
        sums = peers.gather(own.numpy().tobytes() or b"-")
        differs = _unequal([_integers(sums[rank]) for rank in rivals])
        for block in differs.nonzero().flatten().tolist()[:_BLOCKS]:
            found += _in_block(peers, part, name, block, rivals)
    return found[:_ELEMENTS]


def _in_block(
    peers: Peers, part: Part | None, name: str, block: int, rivals: Sequence[int]
) -> list[Element]:
    begin = block * BLOCK
    own = part.local.reshape(-1)[begin : begin + BLOCK].cpu() if part else torch.zeros(1)
    contents = peers.gather(own.contiguous().view(torch.uint8).numpy().tobytes())
    rows = [torch.frombuffer(bytearray(contents[rank]), dtype=torch.float32) for rank in rivals]
    group, _, tensor = name.partition("/")
    usual = min(disputes.usual_size(row) for row in rows)
    return [
        Element(
            group=group,
            tensor=tensor,
            index=begin + place,
            usual=usual,
            values=tuple(float(row[place]) for row in rows),
        )
        for place in _unequal([row.view(torch.int32) for row in rows]).nonzero().flatten().tolist()
    ]


def _integers(content: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.int64)


def _unequal(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return at which places not all rows are the same."""
    return torch.stack([row != rows[0] for row in rows]).any(0)
