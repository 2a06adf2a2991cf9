"""Checksums of files, as hubs and S3 state them.

S3 states that of a multipart upload as a checksum of the parts' checksums:
docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity.html
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

SHA256: Final = "sha256"
MD5: Final = "md5"
CRC32: Final = "crc32"
GIT_SHA1: Final = "git-sha1"
"""Name of a git object: SHA-1 of a header with the size, and the content."""


@dataclass(frozen=True, kw_only=True)
class Checksum:
    """What the content of a file must result in."""

    algorithm: str
    digest: str
    """Hexadecimal, in lower case."""
    part_bytes: int = 0
    """Size of each part but the last, if the digest is one of the parts' digests; 0: of the whole content."""


class _Hash(Protocol):
    def update(self, content: bytes, /) -> None: ...
    def digest(self) -> bytes: ...


class _Crc32:
    def __init__(self) -> None:
        self._value = 0

    def update(self, content: bytes, /) -> None:
        self._value = zlib.crc32(content, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(4, "big")


def _git_sha1(size: int) -> _Hash:
    return hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)


def _new(algorithm: str, size: int) -> Callable[[], _Hash]:
    kinds: dict[str, Callable[[], _Hash]] = {
        SHA256: hashlib.sha256,
        MD5: lambda: hashlib.md5(usedforsecurity=False),
        CRC32: _Crc32,
        GIT_SHA1: lambda: _git_sha1(size),
    }
    return kinds[algorithm]


class RunningChecksum:
    """Computes a checksum block by block."""

    def __init__(self, wanted: Checksum, size: int) -> None:
        """`size`: bytes of the file."""
        self._wanted = wanted
        self._new = _new(wanted.algorithm, size)
        self._hash = self._new()
        self._parts = bytearray()
        self._left = wanted.part_bytes

    def update(self, content: bytes) -> None:
        """Add the next bytes."""
        while self._wanted.part_bytes and len(content) > self._left:
            self._hash.update(content[: self._left])
            content = content[self._left :]
            self._end_part()
        self._hash.update(content)
        self._left -= len(content)

    def matches(self) -> bool:
        """Return whether the content had the wanted checksum."""
        if self._wanted.part_bytes:
            self._end_part()
            self._hash.update(bytes(self._parts))
        return self._hash.digest().hex() == self._wanted.digest

    def _end_part(self) -> None:
        self._parts += self._hash.digest()
        self._hash, self._left = self._new(), self._wanted.part_bytes
