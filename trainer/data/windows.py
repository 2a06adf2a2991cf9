"""The samples of a split as windows over memory-mapped shards.

A stretch is a whole shard or one document of it. Windows of S tokens cover it without overlap (a
sample also has the following token, as the last target). The last window of a document ends with the
document and may overlap the one before.

Shapes: B samples, S = sequence_length.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from trainer.prepare.dataset import START_DTYPE, DatasetError, Index, Shard, Split

Int64s = npt.NDArray[np.int64]
Tokens = npt.NDArray[np.unsignedinteger[Any]]
"""uint16 or uint32, see the dataset's index."""
Documents = Literal["join", "separate"]


@dataclass(frozen=True, kw_only=True)
class DatasetVersion:
    """A dataset version on this machine."""

    folder: Path
    index: Index


class TokenWindows:
    """The windows of one split, numbered consecutively over all datasets."""

    def __init__(
        self,
        opened: Sequence[DatasetVersion],
        split: Split,
        sequence_length: int,
        documents: Documents = "join",
    ) -> None:
        """Map the shards. Raises DatasetError when a dataset holds no window.

        All datasets must have the same dtype.
        """
        self.length = sequence_length
        self.sizes: list[int] = []
        """Windows of each dataset."""
        self._files: list[Tokens] = []
        begins, lengths, counts = [], [], []
        for dataset in opened:
            size = 0
            for tokens, starts, sizes in _stretches(dataset, split, documents):
                self._files.append(tokens)
                begins.append(_address(tokens) // tokens.itemsize + starts)
                lengths.append(sizes)
                counts.append(_windows(sizes, sequence_length, documents))
                size += int(counts[-1].sum())
            if not size:
                what = "shard" if documents == "join" else "document"
                raise DatasetError(
                    f"{dataset.folder}: no {split} {what} holds data.sequence_length + 1 = "
                    f"{sequence_length + 1} tokens; prepare more text or lower data.sequence_length"
                )
            self.sizes.append(size)
        self._rows, base = _one_view(self._files, sequence_length + 1)
        begin = np.concatenate(begins) - base
        self._ends = np.cumsum(np.concatenate(counts))
        before = np.insert(self._ends[:-1], 0, 0)
        self._shifts = begin - before * sequence_length
        """Per stretch: position of a window minus its number times S."""
        self._lasts = begin + np.concatenate(lengths) - sequence_length - 1
        self._overlap = documents == "separate"

    def __len__(self) -> int:
        return int(self._ends[-1])

    def gather(self, wanted_B: Int64s) -> Tokens:
        """Return the windows with these numbers, shape [B, S + 1], in that order."""
        return self.rows_at(self.places(wanted_B))

    def rows_at(self, places_B: Int64s) -> Tokens:
        """Return the windows at positions from `places`, shape [B, S + 1]."""
        return self._rows[places_B]

    def places(self, wanted_B: Int64s) -> Int64s:
        """Return where each window begins, in tokens from the start of the common view."""
        stretches_B = np.searchsorted(self._ends, wanted_B, side="right")
        places_B: Int64s = wanted_B * self.length
        places_B += self._shifts[stretches_B]
        if self._overlap:
            np.minimum(places_B, self._lasts[stretches_B], out=places_B)
        return places_B


def _stretches(
    dataset: DatasetVersion, split: Split, documents: Documents
) -> Iterator[tuple[Tokens, Int64s, Int64s]]:
    for shard in dataset.index.shards_of(split):
        file = dataset.folder / shard.name
        with file.open("rb", buffering=0) as stream:  # np.memmap takes ten times as long
            mapped = mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ)
        tokens = np.frombuffer(mapped, dtype=dataset.index.dtype)
        starts = np.zeros(1, dtype=np.int64)
        if documents == "separate":
            starts = _document_starts(dataset.folder, shard)
        yield tokens, starts, np.diff(starts, append=shard.tokens)


def _document_starts(folder: Path, shard: Shard) -> Int64s:
    """Return where documents begin; a shard may begin inside one."""
    starts = np.fromfile(folder / shard.starts_name, dtype=START_DTYPE).astype(np.int64)
    return starts if len(starts) and starts[0] == 0 else np.insert(starts, 0, 0)


def _windows(lengths: Int64s, sequence_length: int, documents: Documents) -> Int64s:
    """Return windows per stretch; a document has one more window that ends with it."""
    whole: Int64s = (lengths - 1) // sequence_length
    if documents == "separate":
        rest = (lengths - 1) % sequence_length > 0
        return np.where(whole > 0, whole + rest, 0)
    return whole


def _address(tokens: Tokens) -> int:
    return int(tokens.__array_interface__["data"][0])


def _one_view(files: Sequence[Tokens], width: int) -> tuple[Tokens, int]:
    """Return a view of all rows of `width` tokens in the mapped files, and its origin in tokens.

    numpy gathers from one array without an extra copy, so this view spans all mappings and the memory
    between them: a row is indexed by its address in tokens. (Mappings are page-aligned.) Only rows
    inside of files may be read.
    """
    first = min(files, key=_address)
    size = first.itemsize
    span = max(_address(tokens) + tokens.nbytes for tokens in files) - _address(first)
    rows = np.lib.stride_tricks.as_strided(
        first, (span // size - width + 1, width), (size, size), writeable=False
    )
    return rows, _address(first) // size
