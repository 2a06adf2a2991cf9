"""Write a dataset version atomically."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from training.prepare.dataset import (
    FORMAT,
    INDEX_FILE,
    LATEST_FILE,
    TOKENIZER_FILE,
    DatasetError,
    Index,
    Split,
    read_index,
    resolve_version,
    verify_files,
)
from training.prepare.scan import (
    SPLITS,
    ProgressCallback,
    ScanResult,
    digest_prefix,
    scan_source,
    source_changed,
)
from training.prepare.shards import ShardWriter
from training.prepare.source import Source
from training.prepare.tokens import BytesEncoder, Encoder
from training.spec import LATEST
from trainyard.disk import fsync_folder, replace_text, write_durably

BATCH_BYTES: Final = 4 * 1024 * 1024
"""Text tokenized per call, in parallel by the tokenizer's threads."""
BATCH_TEXTS: Final = 4096
STAGING_PREFIX: Final = ".preparing-"
LOCK_FILE: Final = ".lock"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Split and shard settings; part of the dataset's identity."""

    eval_fraction: float = 0.05
    """Fraction of documents held out, chosen by the hash of their content."""
    shard_tokens: int = 4 * 1024 * 1024
    """Maximum tokens per shard."""


@dataclass(frozen=True, kw_only=True)
class TokenizerSpec:
    """A tokenizer, possibly still to be trained."""

    identity: str
    """Part of the dataset's identity: equal identities and texts give equal tokenizers."""
    make: Callable[[Source, ScanResult], Encoder]
    """Called once, if the dataset does not exist. Raises DatasetError."""


BYTES_TOKENIZER: Final = TokenizerSpec(
    identity="bytes", make=lambda _source, _survey: BytesEncoder()
)


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A piece of a document."""

    text: bytes
    split: Split
    begins: bool
    """Whether it is the first of its document."""
    ends: bool
    """Whether it is the last of its document."""


def no_progress(_what: str, _bytes: int) -> None:
    """Report no progress."""


def prepare(
    source: Source,
    out: Path,
    settings: Settings,
    tokenizer: TokenizerSpec = BYTES_TOKENIZER,
    progress: ProgressCallback = no_progress,
) -> tuple[Path, bool]:
    """Prepare the dataset; return its folder and whether it was written.

    Equal text and settings reuse the existing version. Raises DatasetError for too little text,
    OSError when it cannot be written.
    """
    found = scan_source(source, settings.eval_fraction, progress)
    described = {
        "kind": source.kind,
        "documents": found.documents,
        "bytes": found.bytes,
        "eval_fraction": settings.eval_fraction,
        "shard_tokens": settings.shard_tokens,
        "tokenizer": tokenizer.identity,
        "fingerprint": found.fingerprint,
    }
    existing = _existing(out, described)
    if existing is not None:
        return existing, False
    encoder = tokenizer.make(source, found)
    with staging_folder(out) as staging:
        index = _write_version(staging, source, found, described, settings, encoder, progress)
        folder = out / index.version
        if not _whole(folder):
            shutil.rmtree(folder, ignore_errors=True)
            (staging / LOCK_FILE).unlink()
            staging.chmod(0o755)
            staging.rename(folder)
    replace_text(out / LATEST_FILE, index.version + "\n")
    return folder, True


@contextmanager
def staging_folder(out: Path) -> Iterator[Path]:
    """Yield a hidden folder in `out`, removed at the end; first remove those of killed processes."""
    out.mkdir(parents=True, exist_ok=True)
    for left in out.glob(f"{STAGING_PREFIX}*"):
        _remove_if_left(left)
    staging = Path(tempfile.mkdtemp(prefix=STAGING_PREFIX, dir=out))
    with (staging / LOCK_FILE).open("w") as lock:
        try:
            with contextlib.suppress(OSError):  # some file systems have no locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def _remove_if_left(folder: Path) -> None:
    """Remove the folder unless a process may hold it."""
    with contextlib.suppress(OSError), (folder / LOCK_FILE).open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)


def _existing(out: Path, described: dict[str, Any]) -> Path | None:
    """Return the newest version if its source is the same and its files are complete."""
    try:
        folder = out / resolve_version(out, LATEST)
        index = read_index(folder)
    except DatasetError:
        return None
    return folder if index.source == described and _whole(folder) else None


def _whole(folder: Path) -> bool:
    try:
        return not verify_files(folder, read_index(folder), hashes=True)
    except DatasetError:
        return False


def _write_version(
    folder: Path,
    source: Source,
    found: ScanResult,
    described: dict[str, Any],
    settings: Settings,
    encoder: Encoder,
    progress: ProgressCallback,
) -> Index:
    writers = _write_shards(folder, source, found, settings.shard_tokens, encoder, progress)
    if encoder.file is not None:
        write_durably(folder / TOKENIZER_FILE, encoder.file)
    index = Index(
        format=FORMAT,
        dtype=encoder.dtype,
        vocab_size=encoder.vocab_size,
        boundary=encoder.boundary,
        tokenizer=encoder.record,
        source=described,
        shards=tuple(shard for split in SPLITS for shard in writers[split].shards),
        unigram_counts=tuple(int(count) for count in writers["train"].counts),
    )
    write_durably(folder / INDEX_FILE, index.to_json().encode())
    fsync_folder(folder)
    return index


def _write_shards(
    folder: Path,
    source: Source,
    found: ScanResult,
    limit: int,
    encoder: Encoder,
    progress: ProgressCallback,
) -> dict[Split, ShardWriter]:
    """Write the tokens of every document, each followed by a boundary: the second pass."""
    vocabulary = encoder.vocab_size
    writers = {
        split: ShardWriter(folder=folder, split=split, limit=limit, vocab_size=vocabulary)
        for split in SPLITS
    }
    done = 0
    end = np.array([encoder.boundary], dtype=encoder.dtype)
    for batch in _batches(iter_pieces(source, found)):
        found_tokens = encoder.encode([piece.text for piece in batch])
        for piece, tokens in zip(batch, found_tokens, strict=True):
            whole = np.concatenate([tokens, end]) if piece.ends else tokens
            writers[piece.split].add(whole, begins=piece.begins)
            done += len(piece.text)
        progress("writing", done)
    for writer in writers.values():
        writer.close()
    return writers


def iter_pieces(source: Source, found: ScanResult, part: float = 1.0) -> Iterator[Piece]:
    """Yield the pieces of distinct documents in order, verified against the scan.

    `part` < 1 selects about that fraction of documents, deterministically.
    """
    for document, split, expected in found.distinct(source):
        if (expected & 0xFFFFFFFF) >= part * 2**32:
            continue
        digest = hashlib.sha256()
        before: bytes | None = None
        begins = True
        for text in document.pieces():
            digest.update(text)
            if before is not None:
                yield Piece(text=before, split=split, begins=begins, ends=False)
                begins = False
            before = text
        if before is None or digest_prefix(digest.digest()) != expected:
            raise source_changed(source, document.name)
        yield Piece(text=before, split=split, begins=begins, ends=True)


def _batches(stream: Iterator[Piece]) -> Iterator[list[Piece]]:
    batch: list[Piece] = []
    held = 0
    for piece in stream:
        batch.append(piece)
        held += len(piece.text)
        if held >= BATCH_BYTES or len(batch) == BATCH_TEXTS:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch
