"""The first pass over a source: deduplicate, split and fingerprint its documents.

Eight bytes of SHA-256 are kept per document, to find duplicates, choose its split, and detect changes
in the second pass. (Among 10^8 documents, two different ones share these bytes with a probability of
0.03 %; one of them would be dropped.) With several processes each reads whole files.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from trainer.prepare.dataset import DatasetError, Split
from trainer.prepare.documents import Document
from trainer.prepare.source import FAULTS, Source, first_faults
from trainer.prepare.state import ProgressCallback

SPLITS: tuple[Split, ...] = ("train", "eval")


@dataclass(frozen=True, kw_only=True)
class ScanResult:
    documents: int
    bytes: int
    """Of the distinct documents."""
    fingerprint: str
    """SHA-256 over names and contents of all documents."""
    digests: npt.NDArray[np.uint64] = field(repr=False)
    """Digests of all non-empty documents with duplicates, in source order."""
    kept: npt.NDArray[np.bool_] = field(repr=False)
    """False for duplicates of an earlier document."""
    held_out: npt.NDArray[np.bool_] = field(repr=False)
    """Chosen by content, so that duplicates share a split."""

    def distinct(self, source: Source) -> Iterator[tuple[Document, Split, int]]:
        """Yield each distinct document with its split and digest, for the second pass.

        Raises DatasetError when the number of documents has changed since the first pass.
        """
        number = 0
        for document in source.documents():
            if next(document.pieces(), None) is None:
                continue
            if number >= len(self.kept):
                break
            if self.kept[number]:
                split: Split = "eval" if self.held_out[number] else "train"
                yield document, split, int(self.digests[number])
            number += 1
        else:
            if number == len(self.kept):
                return
        raise source_changed(source, "the number of its documents")


@dataclass(frozen=True, kw_only=True)
class FileScan:
    """The non-empty documents of one file, in order."""

    names: list[str]
    digests: bytes
    """32 bytes of SHA-256 for each."""
    lengths: array[int]
    faults: tuple[str, ...] = ()
    """Why it cannot be read."""


def source_changed(source: Source, what: str) -> DatasetError:
    return DatasetError(f"{source.root}: {what} changed while it was read; prepare it again")


def digest_prefix(digest: bytes) -> int:
    """Return the first eight bytes of a SHA-256 as an integer."""
    return int.from_bytes(digest[:8], "big")


def scan_source(
    source: Source, eval_fraction: float, progress: ProgressCallback, processes: int = 1
) -> ScanResult:
    """Read every document once. Raises DatasetError for unreadable files and rows, and for an empty split."""
    digests, lengths, fingerprint, done = array("Q"), array("Q"), hashlib.sha256(), 0
    files = list(source.files())
    total = sum(file.stat().st_size for _, file in files)
    faults: list[str] = []
    for (_, file), scan in map_in_order(
        partial(_scan_file, source), files, processes, bytes_=total
    ):
        faults += scan.faults
        if len(faults) >= FAULTS:
            break
        for number, name in enumerate(scan.names):
            digest = scan.digests[32 * number : 32 * (number + 1)]
            digests.append(digest_prefix(digest))
            fingerprint.update(f"{name}\0{digest.hex()}\n".encode("utf-8", "surrogateescape"))
        lengths.extend(scan.lengths)
        done += file.stat().st_size
        progress("reading", done, total)
    if faults:
        raise DatasetError(*first_faults(faults))
    found = np.frombuffer(digests, dtype=np.uint64) if digests else np.zeros(0, dtype=np.uint64)
    kept = np.zeros(len(found), dtype=bool)
    kept[np.unique(found, return_index=True)[1]] = True
    if not kept.any():
        count = f"{len(files)} file{'s' if len(files) > 1 else ''} without text"
        raise DatasetError(
            f"{source.root}: has {count if files else 'no file to read'}; the dataset would be empty; "
            "add text, or correct the format"
        )
    held_out = (found >> np.uint64(32)) < eval_fraction * 2**32
    for split, there in zip(SPLITS, (~held_out & kept, held_out & kept), strict=True):
        if not there.any():
            raise DatasetError(
                f"{source.root}: no text for the {split} split in {int(kept.sum())} distinct "
                f"documents of {len(files)} files; add text or change --eval-fraction"
            )
    sizes = np.frombuffer(lengths, dtype=np.uint64)
    return ScanResult(
        documents=int(kept.sum()),
        bytes=int(sizes[kept].sum()),
        fingerprint=fingerprint.hexdigest(),
        digests=found,
        kept=kept,
        held_out=held_out,
    )


def _scan_file(source: Source, named: tuple[str, Path]) -> FileScan:
    names: list[str] = []
    digests = bytearray()
    lengths = array("Q")
    faults: tuple[str, ...] = ()
    try:
        for document in source.documents_of(*named):
            digest, length = hashlib.sha256(), 0
            for piece in document.pieces():
                digest.update(piece)
                length += len(piece)
            if length:
                names.append(document.name)
                digests += digest.digest()
                lengths.append(length)
    except DatasetError as error:
        faults = error.args
    return FileScan(names=names, digests=bytes(digests), lengths=lengths, faults=faults)


_In = TypeVar("_In")
_Out = TypeVar("_Out")

WORTH_BYTES: Final = 64 * 1024 * 1024
"""Less text than this is done sooner than processes have started."""
_AHEAD: Final = 2
"""Inputs under way per process, which bounds the memory for results that wait for their turn."""


def available_processes() -> int:
    """Return the number of cores that this process may use; a CPU limit of its container is not seen."""
    return len(os.sched_getaffinity(0))


def map_in_order(
    work: Callable[[_In], _Out],
    inputs: Iterable[_In],
    processes: int,
    *,
    bytes_: int,
    start: Callable[[], None] | None = None,
) -> Iterator[tuple[_In, _Out]]:
    """Yield each input with its result, computed by so many processes; by this one if the text is short.

    `bytes_`: size of the text in all; `start`: called first in each process. Raises what `work` raises.
    """
    if processes <= 1 or bytes_ < WORTH_BYTES:
        if start:
            start()
        yield from ((one, work(one)) for one in inputs)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=start) as pool:
        waiting: deque[tuple[_In, Future[_Out]]] = deque()
        try:
            for one in inputs:
                waiting.append((one, pool.submit(work, one)))
                if len(waiting) >= _AHEAD * processes:
                    first, result = waiting.popleft()
                    yield first, result.result()
            while waiting:
                first, result = waiting.popleft()
                yield first, result.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
