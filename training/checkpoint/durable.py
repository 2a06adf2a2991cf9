"""Writing one file so that it is on the disk when the call returns, with its SHA-256.

Large files go around the page cache where the file system takes that (O_DIRECT): a buffered write
costs a copy and a later write-back, which is CPU time that training loses.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from training.checkpoint.manifest import FileRecord
from training.checkpoint.store import Chunk

BLOCK_BYTES: Final = 8 * 1024 * 1024
"""Hashed and written at a time: small enough to stay in cache between the two."""
_DIRECT_FROM_BYTES: Final = 1024 * 1024
"""Smaller files are not worth a flush of their own size."""
_SECTOR_BYTES: Final = 4096
_O_DIRECT: Final = getattr(os, "O_DIRECT", 0)
"""Not every platform has it."""


def write_file(path: Path, chunks: Sequence[Chunk], at: Callable[[str], None]) -> FileRecord:
    """A new file with the concatenation of `chunks`, fsynced. Raises OSError.

    Only chunks that begin at a multiple of a page, in memory and in the file, go around the cache.
    """
    digest, size = hashlib.sha256(), 0
    wholes = [memoryview(chunk).cast("B") for chunk in chunks]
    large = sum(map(len, wholes)) >= _DIRECT_FROM_BYTES
    with _NewFile(path, direct=large) as file:
        for whole in wholes:
            for start in range(0, len(whole), BLOCK_BYTES):
                block = whole[start : start + BLOCK_BYTES]
                digest.update(block)
                at(f"write {path.name}")
                file.write(block)
                size += len(block)
        at(f"fsync {path.name}")
        file.sync()
    return FileRecord(bytes=size, sha256=digest.hexdigest())


class _NewFile:
    """A descriptor that writes around the page cache as long as it can."""

    def __init__(self, path: Path, *, direct: bool) -> None:
        self._direct = direct and bool(_O_DIRECT)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            self._descriptor = os.open(path, flags | (_O_DIRECT if self._direct else 0), 0o644)
        except OSError as error:
            if not self._direct or error.errno != errno.EINVAL:
                raise
            self._direct = False  # the file may be there by now, or not: ask for neither
            self._descriptor = os.open(path, flags & ~os.O_EXCL, 0o644)

    def write(self, block: memoryview) -> None:
        """All of it. Raises OSError."""
        while len(block):
            part = block
            if self._direct:
                part = block[: len(block) // _SECTOR_BYTES * _SECTOR_BYTES]
                if not len(part):
                    self._disable_direct_io()
                    continue
            try:
                block = block[os.write(self._descriptor, part) :]
            except OSError as error:
                if not self._direct or error.errno != errno.EINVAL:
                    raise
                self._disable_direct_io()

    def sync(self) -> None:
        """Everything written so far is on the disk when this returns."""
        os.fsync(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    def _disable_direct_io(self) -> None:
        """For a tail that is no whole sector, and for memory or a disk that cannot."""
        self._direct = False
        flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
        fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags & ~_O_DIRECT)
