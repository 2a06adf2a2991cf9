"""Write a file durably with its hash.

Large files bypass the page cache where the file system supports O_DIRECT: a buffered write costs a
copy and a write-back, CPU time that training loses. A chunk is hashed in one call and written in
another: each call gives up the interpreter's lock and takes it back from training.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

from trainyard.store.interface import Chunk
from trainyard.store.manifest import Content, FileRecord

if TYPE_CHECKING:
    from typing import Self  # Python 3.11

_DIRECT_FROM_BYTES: Final = 1024 * 1024
"""Smaller files are written through the page cache."""
_SECTOR_BYTES: Final = 4096
_O_DIRECT: Final = getattr(os, "O_DIRECT", 0)
"""Not every platform has it."""


def write_file(path: Path, chunks: Sequence[Chunk], at: Callable[[str], None]) -> FileRecord:
    """Write a new file with the concatenation of `chunks` and fsync it. Raises OSError.

    Only chunks that are page-aligned in memory and in the file bypass the page cache.
    """
    content = Content()
    blocks = [memoryview(chunk).cast("B") for chunk in chunks]
    large = sum(map(len, blocks)) >= _DIRECT_FROM_BYTES
    with _NewFile(path, direct=large) as file:
        for block in blocks:
            content.update(block)
            at(f"write {path.name}")
            file.write(block)
        at(f"fsync {path.name}")
        file.sync()
    return content.record()


class _NewFile:
    """A file descriptor that uses O_DIRECT as long as it can."""

    def __init__(self, path: Path, *, direct: bool) -> None:
        self._direct = direct and bool(_O_DIRECT)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            self._descriptor = os.open(path, flags | (_O_DIRECT if self._direct else 0), 0o644)
        except OSError as error:
            if not self._direct or error.errno != errno.EINVAL:
                raise
            self._direct = False  # the file may exist by now, so without O_EXCL
            self._descriptor = os.open(path, flags & ~os.O_EXCL, 0o644)

    def write(self, block: memoryview) -> None:
        """Write the whole block. Raises OSError."""
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
        """Clear O_DIRECT: for a tail smaller than a sector, and for memory or disks that refuse it."""
        self._direct = False
        flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
        fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags & ~_O_DIRECT)
