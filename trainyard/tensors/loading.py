"""Load a checkpoint into this rank's tensors, whatever layout it was saved with, and verify it.

Every file with data for this rank is read once, sequentially, while its hash is computed; a piece
that matches a tensor's memory is read directly into it. So tensors may hold wrong data when
CorruptCheckpoint is raised: then another checkpoint must be loaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import torch

from trainyard.objects import ObjectError
from trainyard.store.interface import CheckpointStore, Source
from trainyard.store.manifest import Content, CorruptCheckpoint, FileRecord, Manifest
from trainyard.tensors.layout import Box, Layout, Piece, StoredTensor
from trainyard.tensors.local_tensors import DTYPES, Groups, LocalTensor, local_tensor
from trainyard.tensors.staging import part_of

_BLOCK_BYTES: Final = 2 * 1024 * 1024
"""Block to read and hash: small enough to stay in the CPU cache in between."""
_MOST_THREADS: Final = 4


@dataclass(frozen=True, slots=True)
class _Use:
    """A piece of a file and the part that this rank needs."""

    piece: Piece
    bytes: int
    needed: Box
    target: LocalTensor

    @property
    def end(self) -> int:
        return self.piece.begin + self.bytes


def load_tensors(
    store: CheckpointStore, manifest: Manifest, layout: Layout, groups: Groups
) -> None:
    """Fill this rank's tensors. Raises CorruptCheckpoint; compare the layouts before."""
    uses: dict[str, list[_Use]] = {}
    for group, tensors in groups.items():
        for name, tensor in tensors.items():
            for use in _uses(layout[group][name], local_tensor(tensor)):
                uses.setdefault(use.piece.file, []).append(use)
    threads = min(_MOST_THREADS, len(os.sched_getaffinity(0)), max(1, len(uses)))
    # Largest first, so that no thread ends with a large file.
    order = sorted(uses, key=lambda name: -sum(use.bytes for use in uses[name]))
    with ThreadPoolExecutor(threads, "checkpoint-reader") as pool:
        jobs = [pool.submit(_read, store, manifest, name, uses[name]) for name in order]
        for job in jobs:
            job.result()


def _uses(stored: StoredTensor, target: LocalTensor) -> Iterator[_Use]:
    missing = target.share.box.elements
    for piece in stored.pieces:
        if needed := piece.box.overlap(target.share.box):
            missing -= needed.elements
            yield _Use(piece, stored.bytes_of(piece.box), needed, target)
    if missing:
        raise CorruptCheckpoint("the layout does not cover a tensor")


def _read(store: CheckpointStore, manifest: Manifest, name: str, uses: list[_Use]) -> None:
    record = manifest.files.get(name)
    if record is None:
        raise CorruptCheckpoint(f"{name}: not in the manifest")
    try:
        with store.open(manifest.step, name) as source:
            _read_in_order(_Hashing(source, name, record), uses)
    except ObjectError:
        raise  # a bucket that does not answer is no damage
    except OSError as error:
        raise CorruptCheckpoint(f"{name}: {error.strerror or error}") from None


@torch.no_grad()
def _read_in_order(source: _Hashing, uses: list[_Use]) -> None:
    scratch: dict[bool, torch.Tensor] = {}
    for use in sorted(uses, key=lambda use: use.piece.begin):
        source.skip(use.piece.begin - source.position)
        part = part_of(use.target, use.needed)
        if use.needed == use.piece.box and part.device.type == "cpu" and part.is_contiguous():
            source.fill(_bytes_of(part))
            continue
        pinned = part.device.type == "cuda"
        if pinned not in scratch or scratch[pinned].numel() < use.bytes:
            scratch[pinned] = torch.empty(use.bytes, dtype=torch.uint8, pin_memory=pinned)
        raw = scratch[pinned][: use.bytes]
        source.fill(_bytes_of(raw))
        stored = raw.view(part.dtype).view(use.piece.box.shape)
        part.copy_(stored[use.needed.slices_in(use.piece.box)])
    source.finish()


class _Hashing:
    """A source that computes its hash while it is read."""

    def __init__(self, source: Source, name: str, record: FileRecord) -> None:
        self._source, self._name, self._record = source, name, record
        self._content = Content(record.algorithm)

    @property
    def position(self) -> int:
        return self._content.bytes

    def fill(self, out: memoryview) -> None:
        """Read the next len(out) bytes. Raises CorruptCheckpoint if there are fewer."""
        while len(out):
            block = out[:_BLOCK_BYTES]
            got = self._source.readinto(block)
            if not got:
                raise CorruptCheckpoint(
                    f"{self._name}: got {self.position} bytes; "
                    f"the manifest says {self._record.bytes}"
                )
            self._content.update(block[:got])
            out = out[got:]

    def skip(self, count: int) -> None:
        """Read bytes for the hash only. Raises CorruptCheckpoint."""
        waste = memoryview(bytearray(min(count, _BLOCK_BYTES)))
        while count > 0:
            block = waste[:count]
            self.fill(block)
            count -= len(block)

    def finish(self) -> None:
        """Read to the end and compare. Raises CorruptCheckpoint."""
        self.skip(self._record.bytes - self.position)
        beyond = memoryview(bytearray(1))
        self._content.update(beyond[: self._source.readinto(beyond)])
        self._record.compare(self._name, self._content.record())


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    raw: Any = tensor.reshape(-1).view(torch.uint8).numpy()
    return memoryview(raw)


def whole_tensors(layout: Layout, group: str) -> Mapping[str, torch.Tensor]:
    """Return empty, unsharded tensors of a group to load into."""
    by_name = {name: dtype for dtype, name in DTYPES.items()}
    return {
        name: torch.empty(tensor.shape, dtype=by_name[tensor.dtype])
        for name, tensor in layout[group].items()
    }
