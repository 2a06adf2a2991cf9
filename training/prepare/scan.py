"""The first pass over a source: what is there, without keeping any of it.

Eight bytes are kept per document, the front of its SHA-256: which copies to leave out, which split
it belongs to, and whether it is still the same in the second pass. (Two different documents among
10^8 share these bytes with a chance of 0.03 %; one of them would then be left out.)
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from training.prepare.dataset import DatasetError, Split
from training.prepare.documents import Document
from training.prepare.source import Source

SPLITS: tuple[Split, ...] = ("train", "eval")

ProgressCallback = Callable[[str, int], None]
"""Called with the current activity and the bytes done so far."""


@dataclass(frozen=True, kw_only=True)
class ScanResult:
    """What the first pass found."""

    documents: int
    """Distinct ones."""
    bytes: int
    """In them."""
    fingerprint: str
    """SHA-256 over the names and contents of all."""
    digests: npt.NDArray[np.uint64] = field(repr=False)
    """Of every document that is not empty, copies included, in the source's order."""
    kept: npt.NDArray[np.bool_] = field(repr=False)
    """False for copies of an earlier one."""
    held_out: npt.NDArray[np.bool_] = field(repr=False)
    """By content, so all copies of a text are on one side."""

    def distinct(self, source: Source) -> Iterator[tuple[Document, Split, int]]:
        """The second pass: each distinct document, where it belongs, and its digest.

        Raises DatasetError when there are now more or fewer than in the first pass.
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


def source_changed(source: Source, what: str) -> DatasetError:
    """A source that is written to while it is read."""
    return DatasetError(f"{source.root}: {what} changed while it was read; prepare it again")


def digest_prefix(digest: bytes) -> int:
    """The part of a SHA-256 that is kept."""
    return int.from_bytes(digest[:8], "big")


def scan_source(source: Source, eval_fraction: float, progress: ProgressCallback) -> ScanResult:
    """Read everything once. Raises DatasetError when a split stays empty."""
    digests, lengths, fingerprint, done = array("Q"), array("Q"), hashlib.sha256(), 0
    for document in source.documents():
        digest, length = hashlib.sha256(), 0
        for piece in document.pieces():
            digest.update(piece)
            length += len(piece)
        if not length:
            continue
        digests.append(digest_prefix(digest.digest()))
        lengths.append(length)
        fingerprint.update(f"{document.name}\0{digest.hexdigest()}\n".encode())
        done += length
        progress("reading", done)
    found = np.frombuffer(digests, dtype=np.uint64) if digests else np.zeros(0, dtype=np.uint64)
    kept = np.zeros(len(found), dtype=bool)
    kept[np.unique(found, return_index=True)[1]] = True
    held_out = (found >> np.uint64(32)) < eval_fraction * 2**32
    for split, there in zip(SPLITS, (~held_out & kept, held_out & kept), strict=True):
        if not there.any():
            raise DatasetError(
                f"{source.root}: no text for the {split} split in {int(kept.sum())} distinct "
                "documents; add text or change --eval-fraction"
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
