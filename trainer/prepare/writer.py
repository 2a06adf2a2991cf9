"""Write a dataset version atomically."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
from trainer.prepare.progress import ProgressCallback, no_progress
from trainer.prepare.scan import SPLITS, ScanResult, digest_prefix, scan_source, source_changed
from trainer.prepare.shards import JOURNAL_FILE, ShardWriter
from trainer.prepare.source import Source
from trainer.prepare.tokens import BytesEncoder, Encoder, TokenizerEncoder, Tokens
from trainer.prepare.workers import WORTH_BYTES, map_in_order
from trainyard.contract import LATEST
from trainyard.disk import fsync_folder, replace_text, write_durably
from trainyard.hashing import content_hash

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
    boundary: str = ""
    """Boundary token of a tokenizer that is trained; empty: it is not."""


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
    existing = _existing(out, described)
    if existing is not None:
        return existing, False
    with staging_folder(out, content_hash(described)[:16]) as staging:
        encoder = _encoder(staging, tokenizer, source, found)
        work = _Work(source=source, found=found, encoder=encoder, processes=processes)
        index = _write_version(staging, work, described, settings, progress)
        folder = out / index.version
        if not _whole(folder):
            shutil.rmtree(folder, ignore_errors=True)
            for name in (LOCK_FILE, JOURNAL_FILE):
                (staging / name).unlink(missing_ok=True)
            staging.chmod(0o755)
            staging.rename(folder)
    replace_text(out / LATEST_FILE, index.version + "\n")
    return folder, True


@contextmanager
def staging_folder(out: Path, identity: str) -> Iterator[Path]:
    """Yield the hidden folder of this content in `out`; first remove those of other contents that were killed.

    An OSError or an interruption leaves it, so that the next call continues. A second process with the same
    content gets a folder of its own.
    """
    out.mkdir(parents=True, exist_ok=True)
    staging = out / f"{STAGING_PREFIX}{identity}"
    for left in out.glob(f"{STAGING_PREFIX}*"):
        if left != staging:
            _remove_if_left(left)
    staging.mkdir(mode=0o700, exist_ok=True)
    with contextlib.ExitStack() as held:
        lock = held.enter_context((staging / LOCK_FILE).open("a"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # held by another process, or a file system without locks
            staging = Path(tempfile.mkdtemp(prefix=STAGING_PREFIX, dir=out))
            held.enter_context((staging / LOCK_FILE).open("w"))
        try:
            yield staging
        except (OSError, KeyboardInterrupt):
            raise
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        shutil.rmtree(staging, ignore_errors=True)


def _remove_if_left(folder: Path) -> None:
    """Remove the folder unless a process may hold it."""
    with contextlib.suppress(OSError), (folder / LOCK_FILE).open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)


def _encoder(staging: Path, tokenizer: TokenizerSpec, source: Source, found: ScanResult) -> Encoder:
    """Return the encoder; a tokenizer that an interrupted call has trained is used again."""
    kept = staging / TOKENIZER_FILE
    if tokenizer.boundary and kept.exists():
        with contextlib.suppress(DatasetError):
            return TokenizerEncoder(kept.read_bytes(), tokenizer.boundary, str(kept))
    encoder = tokenizer.make(source, found)
    if encoder.file is not None:
        write_durably(kept, encoder.file)
    return encoder


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


@dataclass(frozen=True, kw_only=True)
class _Work:
    """What the second pass reads and how."""

    source: Source
    found: ScanResult
    encoder: Encoder
    processes: int


def _write_version(
    folder: Path,
    work: _Work,
    described: dict[str, Any],
    settings: Settings,
    progress: ProgressCallback,
) -> Index:
    writers = _write_shards(folder, work, settings.shard_tokens, progress)
    encoder = work.encoder
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
    folder: Path, work: _Work, limit: int, progress: ProgressCallback
) -> dict[Split, ShardWriter]:
    """Write the tokens of every document, each followed by a boundary: the second pass."""
    encoder, total = work.encoder, work.found.bytes
    writers = {
        split: ShardWriter(
            folder=folder, split=split, limit=limit, vocab_size=encoder.vocab_size, journal=True
        )
        for split in SPLITS
    }
    for writer in writers.values():
        writer.resume(encoder.dtype)
    end = np.array([encoder.boundary], dtype=encoder.dtype)
    done, skipped, written = 0, _Counter(), 0
    batches = _batches(_unwritten(work, writers, skipped))
    for batch, found_tokens in _encoded(encoder, batches, work.processes, total):
        for piece, tokens in zip(batch, found_tokens, strict=True):
            whole = np.concatenate([tokens, end]) if piece.ends else tokens
            writers[piece.split].add(whole, begins=piece.begins)
            done += len(piece.text)
            written += whole.nbytes
        left = total - skipped.bytes - done
        _check_room(folder, round(left * written / max(1, done)))
        progress("tokenizing", skipped.bytes + done, total)
    for writer in writers.values():
        writer.close()
    return writers


@dataclass
class _Counter:
    """Bytes of text that an interrupted call has written already."""

    bytes: int = 0


def _unwritten(
    work: _Work, writers: Mapping[Split, ShardWriter], skipped: _Counter
) -> Iterator[Piece]:
    for piece in iter_pieces(work.source, work.found):
        if writers[piece.split].skip():
            skipped.bytes += len(piece.text)
        else:
            yield piece


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


def _check_room(folder: Path, needed: int) -> None:
    """Compare what is still to be written, by the ratio so far, with the free space. Raises DatasetError."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DatasetError(
            f"--out: {folder.parent}: {needed / 1e9:.1f} GB still to write, {free / 1e9:.1f} GB free; "
            "free some space and run it again"
        )


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
