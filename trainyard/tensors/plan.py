"""Plan which rank writes which file, from the boxes that all ranks hold. Needs no torch.

Every rank computes the same plan. Of the ranks that hold a large box, the one that writes least so far writes it;
the lowest writes a small one, such as a buffer of BatchNorm, which may differ between ranks.
Files are bounded in size, so that they can be hashed and read in parallel; larger boxes are split
along their first dimension.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from trainyard.tensors.layout import ELEMENT_BYTES, Box, Layout, Piece, Shape, StoredTensor

FILE_BYTES: Final = 64 * 1024 * 1024
"""Maximum tensor data per file, unless one row of a tensor is larger."""
_ALIGNMENT: Final = 64
_LARGE_BYTES: Final = 1024 * 1024


class UnevenLayout(Exception):
    """The boxes of the ranks do not cover each element of a tensor exactly once."""


@dataclass(frozen=True, slots=True)
class TensorShard:
    dtype: str
    shape: Shape
    """Of the whole tensor."""
    box: Box


RankShards = Mapping[str, Mapping[str, TensorShard]]
"""One rank's shards by group (model, optimizer) and name."""


def shards_to_bytes(shares: RankShards) -> bytes:
    """Serialize and compress; the content is very repetitive."""
    values = {
        group: {
            name: [share.dtype, share.shape, share.box.offset, share.box.shape]
            for name, share in tensors.items()
        }
        for group, tensors in shares.items()
    }
    return zlib.compress(json.dumps(values, separators=(",", ":")).encode(), 1)


def shards_from_bytes(content: bytes) -> RankShards:
    """Inverse of `shards_to_bytes`."""
    return {
        group: {
            name: TensorShard(dtype, tuple(shape), Box(tuple(offset), tuple(local)))
            for name, (dtype, shape, offset, local) in tensors.items()
        }
        for group, tensors in json.loads(zlib.decompress(content)).items()
    }


@dataclass(frozen=True, kw_only=True)
class PlannedPiece:
    name: str
    box: Box
    begin: int
    """Byte offset in the file."""
    bytes: int


@dataclass(frozen=True, kw_only=True)
class PlannedFile:
    """One safetensors file: its header, then its pieces without gaps."""

    name: str
    group: str
    header: bytes = field(repr=False)
    pieces: tuple[PlannedPiece, ...]

    @property
    def bytes(self) -> int:
        return len(self.header) + sum(piece.bytes for piece in self.pieces)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Files of each rank and the layout of all tensors."""

    files: tuple[tuple[PlannedFile, ...], ...]
    """By rank."""
    layout: Layout


def make_plan(everyone: Sequence[RankShards], file_bytes: int = FILE_BYTES) -> Plan:
    """Return the plan for the shards of all ranks. Raises UnevenLayout."""
    known, written_by = _assign(everyone)
    files = tuple(tuple(_files_of(rank, known, mine, file_bytes)) for rank, mine in written_by)
    pieces: dict[tuple[str, str], list[Piece]] = {key: [] for key in known}
    for file in (file for own in files for file in own):
        for piece in file.pieces:
            pieces[file.group, piece.name].append(Piece(piece.box, file.name, piece.begin))
    layout: Layout = {}
    for (group, name), share in known.items():
        _check_tiling(f"{group} tensor {name}", share.shape, pieces[group, name])
        stored = StoredTensor(share.dtype, share.shape, tuple(pieces[group, name]))
        layout.setdefault(group, {})[name] = stored
    return Plan(files=files, layout=layout)


Keyed = dict[tuple[str, str], TensorShard]


def _assign(everyone: Sequence[RankShards]) -> tuple[Keyed, list[tuple[int, Keyed]]]:
    """Return one shard of each tensor, for type and shape, and the shards each rank writes."""
    known: Keyed = {}
    holders: dict[tuple[str, str, Box], list[int]] = {}
    for rank, shares in enumerate(everyone):
        for group, tensors in shares.items():
            for name, share in tensors.items():
                first = known.setdefault((group, name), share)
                if (first.dtype, first.shape) != (share.dtype, share.shape):
                    raise UnevenLayout(
                        f"{group} tensor {name}: is {first.dtype} {first.shape} on one rank "
                        f"and {share.dtype} {share.shape} on rank {rank}"
                    )
                if share.box.elements:
                    holders.setdefault((group, name, share.box), []).append(rank)
    loads = [0] * len(everyone)
    written_by: list[Keyed] = [{} for _ in everyone]

    def order(one: tuple[str, str, Box]) -> tuple[bool, int, str, str]:
        """What is no choice first, then the largest."""
        return _is_choice(one), -_bytes(known, one), one[0], one[1]

    def _is_choice(one: tuple[str, str, Box]) -> bool:
        return len(holders[one]) > 1 and _bytes(known, one) >= _LARGE_BYTES

    for one in sorted(holders, key=order):
        ranks = holders[one] if _is_choice(one) else holders[one][:1]
        least = min(ranks, key=lambda rank: (loads[rank], rank))
        loads[least] += _bytes(known, one)
        group, name, _ = one
        written_by[least][group, name] = everyone[least][group][name]
    return known, list(enumerate(written_by))


def _bytes(known: Keyed, one: tuple[str, str, Box]) -> int:
    group, name, box = one
    return box.elements * ELEMENT_BYTES[known[group, name].dtype]


def _files_of(rank: int, known: Keyed, mine: Keyed, file_bytes: int) -> Iterator[PlannedFile]:
    for group in dict.fromkeys(group for group, _ in known):
        names = [name for other, name in mine if other == group]
        # Wide types first: then every tensor of a file is aligned to its own element size.
        names.sort(key=lambda name: (-ELEMENT_BYTES[mine[group, name].dtype], name))
        batch: list[tuple[str, TensorShard]] = []
        size, number = 0, 0
        for name, part, part_bytes in _parts(mine, group, names, file_bytes):
            if batch and size + part_bytes > file_bytes:
                yield _file(group, rank, number, batch)
                batch, size, number = [], 0, number + 1
            batch.append((name, part))
            size += part_bytes
        if batch:
            yield _file(group, rank, number, batch)


def _parts(
    mine: Keyed, group: str, names: Sequence[str], file_bytes: int
) -> Iterator[tuple[str, TensorShard, int]]:
    """Yield the boxes, splitting those larger than a file into rows."""
    for name in names:
        share = mine[group, name]
        width = ELEMENT_BYTES[share.dtype]
        offset, shape = share.box.offset, share.box.shape
        if not shape:
            yield name, share, width
            continue
        row_bytes = width * math.prod(shape[1:])
        rows = max(1, file_bytes // row_bytes)
        for first in range(0, shape[0], rows):
            count = min(rows, shape[0] - first)
            box = Box((offset[0] + first, *offset[1:]), (count, *shape[1:]))
            yield name, TensorShard(share.dtype, share.shape, box), count * row_bytes


def file_name(group: str, rank: int, number: int) -> str:
    """Return `model.safetensors` for rank 0's first file, else a name with rank and number."""
    suffix = f"-{rank:05d}-{number:04d}" if rank or number else ""
    return f"{group}{suffix}.safetensors"


def _file(
    group: str, rank: int, number: int, batch: Sequence[tuple[str, TensorShard]]
) -> PlannedFile:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    ends: list[int] = [0]
    for name, share in batch:
        ends.append(ends[-1] + share.box.elements * ELEMENT_BYTES[share.dtype])
        entries[_key(name, share)] = {
            "dtype": share.dtype,
            "shape": list(share.box.shape),
            "data_offsets": ends[-2:],
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    header = struct.pack("<Q", len(text)) + text
    pieces = tuple(
        PlannedPiece(name=name, box=share.box, begin=len(header) + begin, bytes=end - begin)
        for (name, share), begin, end in zip(batch, ends, ends[1:], strict=False)
    )
    return PlannedFile(
        name=file_name(group, rank, number), group=group, header=header, pieces=pieces
    )


def _key(name: str, share: TensorShard) -> str:
    """Return the tensor's name, with the offset for a part of it: `NAME@128.0`."""
    if share.box.shape == share.shape:
        return name
    return f"{name}@{'.'.join(map(str, share.box.offset))}"


def _check_tiling(what: str, shape: Shape, pieces: Sequence[Piece]) -> None:
    """Check that each element is in exactly one piece, on the grid of all edges."""
    edges = [
        sorted({0, size, *(e for p in pieces for e in _edges(p.box, axis))})
        for axis, size in enumerate(shape)
    ]
    places = [{edge: place for place, edge in enumerate(axis)} for axis in edges]
    counts = np.zeros([len(axis) - 1 for axis in edges], dtype=np.int64)
    for piece in pieces:
        cells = tuple(
            slice(*(places[axis][edge] for edge in _edges(piece.box, axis)))
            for axis in range(len(shape))
        )
        counts[cells] += 1
    inside = all(axis[0] == 0 and axis[-1] == size for axis, size in zip(edges, shape, strict=True))
    if not inside or not bool((counts == 1).all()):
        raise UnevenLayout(
            f"{what}: the ranks do not hold each element exactly once; "
            "shard it along dimensions divisible by the ranks"
        )


def _edges(box: Box, axis: int) -> tuple[int, int]:
    return box.offset[axis], box.offset[axis] + box.shape[axis]
