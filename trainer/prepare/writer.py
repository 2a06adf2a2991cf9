"""Write a dataset version atomically."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from trainer.prepare.dataset import (
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
from trainer.prepare.scan import (
    SPLITS,
    WORTH_BYTES,
    ScanResult,
    digest_prefix,
    map_in_order,
    scan_source,
    source_changed,
)
from trainer.prepare.shards import JOURNAL_FILE, ShardWriter
from trainer.prepare.source import Source
from trainer.prepare.staging import LOCK_FILE, missing_space, remove_abandoned, staging_folder
from trainer.prepare.state import ProgressCallback, no_progress
from trainer.prepare.tokens import (
    BYTES_TOKENIZER,
    Encoder,
    TokenizerEncoder,
    TokenizerSpec,
    Tokens,
)
from trainyard.contract import LATEST
from trainyard.disk import fsync_folder, replace_text, write_durably
from trainyard.hashing import content_hash

BATCH_BYTES: Final = 4 * 1024 * 1024
"""Text tokenized per call, in parallel by the tokenizer's threads."""
BATCH_TEXTS: Final = 4096
TRAINING_BYTES: Final = 256 * 1024 * 1024
"""Approximate amount of training text for a tokenizer: whole documents chosen by digest."""
STAGING_PREFIX: Final = ".preparing-"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Split and shard settings; part of the dataset's identity."""

    eval_fraction: float = 0.05
    """Fraction of documents held out, chosen by the hash of their content."""
    shard_tokens: int = 4 * 1024 * 1024
    """Maximum tokens per shard."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    text: bytes
    split: Split
    begins: bool
    """Whether it is the first of its document."""
    ends: bool
    """Whether it is the last of its document."""


def prepare(
    source: Source,
    out: Path,
    settings: Settings,
    tokenizer: TokenizerSpec = BYTES_TOKENIZER,
    progress: ProgressCallback = no_progress,
    processes: int = 1,
) -> tuple[Path, bool]:
    """Prepare the dataset; return its folder and whether it was written.

    Equal text and settings reuse the existing version; what a killed process has written of it is continued.
    Raises DatasetError for too little text or disk space, OSError when it cannot be written.
    """
    found = scan_source(source, settings.eval_fraction, progress, processes)
    described = {
        "kind": source.kind,
        "documents": found.documents,
        "bytes": found.bytes,
        "eval_fraction": settings.eval_fraction,
        "shard_tokens": settings.shard_tokens,
        "tokenizer": tokenizer.identity,
        "fingerprint": found.fingerprint,
    }
    if existing := _existing(out, described):
        return existing, False
    staging = out / f"{STAGING_PREFIX}{content_hash(described)[:16]}"
    for other in out.glob(f"{STAGING_PREFIX}*"):
        if other != staging:
            remove_abandoned(other)
    with staging_folder(staging, OSError, KeyboardInterrupt):
        if existing := _existing(out, described):  # by the process that held the lock
            return existing, False
        encoder = _encoder(staging, tokenizer, _training_texts(source, found))
        writers = _write_shards(
            staging, source, found, encoder, settings.shard_tokens, processes, progress
        )
        index = _write_index(staging, writers, encoder, described)
        folder = out / index.version
        if not _is_whole(folder):
            shutil.rmtree(folder, ignore_errors=True)
            for name in (LOCK_FILE, JOURNAL_FILE):
                (staging / name).unlink(missing_ok=True)
            staging.chmod(0o755)
            staging.rename(folder)
    replace_text(out / LATEST_FILE, index.version + "\n")
    return folder, True


def _training_texts(source: Source, found: ScanResult) -> Iterator[str]:
    part = min(1.0, TRAINING_BYTES / max(1, found.bytes))
    for piece in iter_pieces(source, found, part):
        if piece.split == "train":
            yield piece.text.decode("utf-8", "replace")


def _encoder(staging: Path, tokenizer: TokenizerSpec, texts: Iterable[str]) -> Encoder:
    """Return the encoder; a tokenizer that an interrupted call has trained is used again."""
    kept = staging / TOKENIZER_FILE
    if tokenizer.boundary and kept.exists():
        with contextlib.suppress(DatasetError):
            return TokenizerEncoder(kept.read_bytes(), tokenizer.boundary, str(kept))
    encoder = tokenizer.make(texts)
    if encoder.file is not None:
        write_durably(kept, encoder.file)
    return encoder


def _existing(out: Path, described: dict[str, Any]) -> Path | None:
    """Return the newest version if its source is the same and its files are complete."""
    try:
        folder = out / resolve_version(out, LATEST)
        if read_index(folder).source == described and _is_whole(folder):
            return folder
    except DatasetError:
        pass
    return None


def _is_whole(folder: Path) -> bool:
    try:
        return not verify_files(folder, read_index(folder), hashes=True)
    except DatasetError:
        return False


def _write_index(
    folder: Path, writers: dict[Split, ShardWriter], encoder: Encoder, described: dict[str, Any]
) -> Index:
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
    encoder: Encoder,
    limit: int,
    processes: int,
    progress: ProgressCallback,
) -> dict[Split, ShardWriter]:
    """Write the tokens of every document, each followed by a boundary: the second pass."""
    writers = {
        split: ShardWriter(
            folder=folder, split=split, limit=limit, vocab_size=encoder.vocab_size, journal=True
        )
        for split in SPLITS
    }
    for writer in writers.values():
        writer.resume(encoder.dtype)
    end = np.array([encoder.boundary], dtype=encoder.dtype)
    skipped = done = written = 0

    def unwritten() -> Iterator[Piece]:
        nonlocal skipped
        for piece in iter_pieces(source, found):
            if writers[piece.split].skip():  # an interrupted call has written it
                skipped += len(piece.text)
            else:
                yield piece

    for batch, tokens_of in _encoded(encoder, _batches(unwritten()), processes, found.bytes):
        for piece, tokens in zip(batch, tokens_of, strict=True):
            whole = np.concatenate([tokens, end]) if piece.ends else tokens
            writers[piece.split].add(whole, begins=piece.begins)
            done += len(piece.text)
            written += whole.nbytes
        left = found.bytes - skipped - done
        if missing := missing_space(folder, round(left * written / max(1, done))):
            raise DatasetError(
                f"--out: {folder.parent}: {missing}; free some space and run it again"
            )
        progress("tokenizing", skipped + done, found.bytes)
    for writer in writers.values():
        writer.close()
    return writers


_encoders: Final[list[Encoder]] = []
"""The encoder of a process that only tokenizes."""


def _encoded(
    encoder: Encoder, batches: Iterator[list[Piece]], processes: int, total: int
) -> Iterator[tuple[list[Piece], list[Tokens]]]:
    """Yield each batch with its tokens. Only tokenizers are worth several processes."""
    if encoder.file is None or processes == 1 or total < WORTH_BYTES:
        yield from ((batch, encoder.encode([piece.text for piece in batch])) for batch in batches)
        return
    start = partial(_start_encoder, encoder.file, encoder.record["boundary_token"])
    yield from map_in_order(_encode_batch, batches, processes, bytes_=total, start=start)


def _start_encoder(content: bytes, boundary_token: str) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # there is a process per core already
    _encoders[:] = [TokenizerEncoder(content, boundary_token, TOKENIZER_FILE)]


def _encode_batch(batch: list[Piece]) -> list[Tokens]:
    return _encoders[0].encode([piece.text for piece in batch])


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
