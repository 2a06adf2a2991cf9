"""Writing one file so that it is on the disk when the call returns, with its SHA-256."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from training.checkpoint.manifest import FileRecord
from training.checkpoint.store import Chunk

BLOCK_BYTES: Final = 8 * 1024 * 1024
"""Hashed and written at a time: small enough to stay in cache between the two."""


def write_file(path: Path, chunks: Sequence[Chunk], at: Callable[[str], None]) -> FileRecord:
    """A new file with the concatenation of `chunks`, fsynced. Raises OSError."""
    digest, size = hashlib.sha256(), 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        for chunk in chunks:
            whole = memoryview(chunk).cast("B")
            for start in range(0, len(whole), BLOCK_BYTES):
                piece = whole[start : start + BLOCK_BYTES]
                digest.update(piece)
                at(f"write {path.name}")
                _write_all(descriptor, piece)
                size += len(piece)
        at(f"fsync {path.name}")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return FileRecord(bytes=size, sha256=digest.hexdigest())


def fsync_folder(folder: Path) -> None:
    """Make the entries of a folder durable. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, piece: memoryview) -> None:
    while len(piece):
        piece = piece[os.write(descriptor, piece) :]
