"""Cuts documents into token shards and makes a dataset version visible all at once."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from training.prepare.dataset import (
    BOUNDARY,
    DTYPE,
    FORMAT,
    INDEX_FILE,
    LATEST_FILE,
    VOCAB_SIZE,
    DatasetError,
    Index,
    Shard,
    Split,
    read_index,
    resolve_version,
    shard_mistakes,
)
from training.prepare.source import Source
from training.spec import LATEST, content_hash

Tokens = npt.NDArray[np.uint16]
_SPLITS: tuple[Split, ...] = ("train", "eval")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the text is cut; part of the dataset's identity."""

    eval_fraction: float = 0.05
    """Part of the files that is held out, chosen by the hash of their content."""
    shard_tokens: int = 4 * 1024 * 1024
    """Most tokens in one shard."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """One file's text and where it belongs."""

    name: str
    content: bytes = field(repr=False)
    sha256: str
    split: Split

    def tokens(self) -> Tokens:
        """Its bytes, then the boundary."""
        tokens = np.empty(len(self.content) + 1, dtype=np.uint16)
        tokens[:-1] = np.frombuffer(self.content, dtype=np.uint8)
        tokens[-1] = BOUNDARY
        return tokens


def prepare(source: Source, out: Path, settings: Settings) -> tuple[Path, bool]:
    """Make the dataset; returns its folder and whether it had to be written.

    Equal text and settings find the existing version and change nothing. Raises DatasetError when
    there is too little text, OSError when it cannot be written.
    """
    documents = read_documents(source, settings.eval_fraction)
    described = _describe(source, documents, settings)
    existing = _existing(out, described)
    if existing is not None:
        return existing, False
    out.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".preparing-", dir=out))
    try:
        index = _write_version(staging, documents, described, settings)
        folder = out / index.version
        if not _whole(folder):
            shutil.rmtree(folder, ignore_errors=True)
            staging.chmod(0o755)
            staging.rename(folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    _replace_text(out / LATEST_FILE, index.version + "\n")
    return folder, True


def read_documents(source: Source, eval_fraction: float) -> list[Document]:
    """Every non-empty file once, sorted by name. Raises DatasetError when a split stays empty."""
    documents, seen = [], set()
    for name, file in source.files():
        try:
            content = file.read_bytes()
        except OSError as error:
            raise DatasetError(f"{file}: cannot be read: {error.strerror}") from None
        digest = hashlib.sha256(content).hexdigest()
        if not content or digest in seen:  # a copy on the other side would leak what is held out
            continue
        seen.add(digest)
        held_out = int(digest[:8], 16) < eval_fraction * 2**32
        split: Split = "eval" if held_out else "train"
        documents.append(Document(name=name, content=content, sha256=digest, split=split))
    for split in _SPLITS:
        if not any(document.split == split for document in documents):
            raise DatasetError(
                f"{source.root}: no text for the {split} split in {len(documents)} distinct files; "
                "give more files or another --eval-fraction"
            )
    return documents


def _describe(source: Source, documents: list[Document], settings: Settings) -> dict[str, object]:
    parts = [[document.name, document.sha256] for document in documents]
    return {
        "kind": source.kind,
        "documents": len(documents),
        "bytes": sum(len(document.content) for document in documents),
        "eval_fraction": settings.eval_fraction,
        "shard_tokens": settings.shard_tokens,
        "fingerprint": content_hash(parts),
    }


def _existing(out: Path, described: dict[str, object]) -> Path | None:
    """The newest version, if it was made of the same and is whole."""
    try:
        folder = out / resolve_version(out, LATEST)
        index = read_index(folder)
    except DatasetError:
        return None
    return folder if index.source == described and _whole(folder) else None


def _whole(folder: Path) -> bool:
    try:
        return not shard_mistakes(folder, read_index(folder), hashes=True)
    except DatasetError:
        return False


def _write_version(
    folder: Path, documents: list[Document], described: dict[str, object], settings: Settings
) -> Index:
    shards: list[Shard] = []
    counts = np.zeros(VOCAB_SIZE, dtype=np.int64)
    for split in _SPLITS:
        texts = (document.tokens() for document in documents if document.split == split)
        for number, tokens in enumerate(_cut(texts, settings.shard_tokens)):
            name = f"shard-{split}-{number:05d}.bin"
            raw = tokens.astype(DTYPE).tobytes()
            _write_durably(folder / name, raw)
            digest = hashlib.sha256(raw).hexdigest()
            shards.append(Shard(name=name, split=split, tokens=len(tokens), sha256=digest))
            if split == "train":
                counts += np.bincount(tokens, minlength=VOCAB_SIZE)
    index = Index(
        format=FORMAT,
        dtype=DTYPE,
        vocab_size=VOCAB_SIZE,
        boundary=BOUNDARY,
        source=described,
        shards=tuple(shards),
        unigram_counts=tuple(int(count) for count in counts),
    )
    _write_durably(folder / INDEX_FILE, index.to_json().encode())
    _fsync_folder(folder)
    return index


def _cut(texts: Iterable[Tokens], limit: int) -> Iterable[Tokens]:
    """Join documents into shards of at most `limit` tokens; only a longer document is cut."""
    waiting: list[Tokens] = []
    held = 0
    for tokens in texts:
        for start in range(0, len(tokens), limit):
            piece = tokens[start : start + limit]
            if held + len(piece) > limit:
                yield np.concatenate(waiting)
                waiting, held = [], 0
            waiting.append(piece)
            held += len(piece)
    if waiting:
        yield np.concatenate(waiting)


def _write_durably(file: Path, content: bytes) -> None:
    with file.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _replace_text(file: Path, text: str) -> None:
    temporary = file.with_name(f".{file.name}-{os.getpid()}")
    try:
        _write_durably(temporary, text.encode())
        temporary.replace(file)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
    _fsync_folder(file.parent)


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
