"""Where the elements of each tensor are: boxes held by ranks, pieces stored in files.

A tensor has one global shape, whatever the parallelism. Each rank holds one box of it; a file holds
pieces, which are boxes too. Any layout can load what another wrote, by overlap. Needs no torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from trainyard.store.manifest import CorruptCheckpoint

LAYOUT_FILE: Final = "layout.json"
ELEMENT_BYTES: Final[Mapping[str, int]] = {
    "F64": 8,
    "F32": 4,
    "BF16": 2,
    "F16": 2,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "BOOL": 1,
}
"""Bytes per element by safetensors type name."""

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Box:
    """A block of a tensor, in global coordinates."""

    offset: Shape
    shape: Shape

    @property
    def elements(self) -> int:
        """Number of elements; 1 for a scalar."""
        return math.prod(self.shape)

    def overlap(self, other: Box) -> Box | None:
        """Return the intersection; None if it is empty."""
        bounds = [
            (max(a, b), min(a + n, b + m))
            for a, n, b, m in zip(self.offset, self.shape, other.offset, other.shape, strict=True)
        ]
        if any(begin >= end for begin, end in bounds):
            return None
        return Box(tuple(begin for begin, _ in bounds), tuple(end - begin for begin, end in bounds))

    def slices_in(self, outer: Box) -> tuple[slice, ...]:
        """Return the slices of this box within one that contains it."""
        return tuple(
            slice(a - b, a - b + n)
            for a, b, n in zip(self.offset, outer.offset, self.shape, strict=True)
        )


def whole_box(shape: Shape) -> Box:
    return Box((0,) * len(shape), shape)


@dataclass(frozen=True, slots=True)
class Piece:
    """A box stored in a file in row-major order."""

    box: Box
    file: str
    begin: int
    """Byte offset in the file."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    dtype: str
    """As in safetensors, for example F32."""
    shape: Shape
    """Of the whole tensor."""
    pieces: tuple[Piece, ...]
    """Disjoint, and together the whole."""

    def bytes_of(self, box: Box) -> int:
        return box.elements * ELEMENT_BYTES[self.dtype]


Layout = dict[str, dict[str, StoredTensor]]
"""Tensors by group (model, optimizer) and name."""


def layout_to_json(layout: Layout) -> bytes:
    """Return layout.json: GROUP -> NAME -> [dtype, shape, [[file, begin, offset, shape]]]."""
    values = {
        group: {
            name: [
                tensor.dtype,
                tensor.shape,
                [[p.file, p.begin, p.box.offset, p.box.shape] for p in tensor.pieces],
            ]
            for name, tensor in tensors.items()
        }
        for group, tensors in layout.items()
    }
    return json.dumps(values, separators=(",", ":")).encode()


def layout_from_json(content: bytes) -> Layout:
    """Parse layout.json. Raises CorruptCheckpoint."""
    try:
        return {
            group: {
                name: StoredTensor(
                    dtype,
                    tuple(shape),
                    tuple(
                        Piece(Box(tuple(o), tuple(s)), file, begin) for file, begin, o, s in pieces
                    ),
                )
                for name, (dtype, shape, pieces) in tensors.items()
            }
            for group, tensors in json.loads(content).items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise CorruptCheckpoint(f"{LAYOUT_FILE}: unreadable: {error}") from None
