"""Charts of the toolchain as archives: the same bytes on every machine, so that their digest can be pinned."""

from __future__ import annotations

import io
import struct
import tarfile
import zlib
from pathlib import Path
from typing import Final

_TESTS: Final = "tests"
"""Folder of a chart that only its developers use; `helm package` leaves it out, too."""
_BLOCK: Final = 0xFFFF


def pack(folder: Path) -> bytes:
    """Return a chart's folder as .tgz."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder)
            if path.is_file() and inside.parts[0] != _TESTS:
                # Owner, mode and time are tarfile's defaults: those of no user, 0644 and 1970.
                entry = tarfile.TarInfo(f"{folder.name}/{inside.as_posix()}")
                entry.size = path.stat().st_size
                with path.open("rb") as file:
                    tar.addfile(entry, file)
    return _gzip(packed.getvalue())


def _gzip(content: bytes) -> bytes:
    """Return gzip's format without compression, whose result depends on the version of zlib."""
    parts = [b"\x1f\x8b\x08\0\0\0\0\0\0\xff"]
    for start in range(0, len(content), _BLOCK):
        block = content[start : start + _BLOCK]
        last = start + _BLOCK >= len(content)
        parts += [struct.pack("<BHH", last, len(block), len(block) ^ _BLOCK), block]
    parts.append(struct.pack("<II", zlib.crc32(content), len(content)))
    return b"".join(parts)
