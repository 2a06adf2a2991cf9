"""Files of a model that are fetched, and what the places that hold them state of their content."""

from __future__ import annotations

import hashlib
import os
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from trainer.prepare.progress import ProgressCallback

CONFIG_FILE: Final = "config.json"
INDEX_FILE: Final = "model.safetensors.index.json"
MOST_FILES: Final = 10_000
SHA256: Final = "sha256"
MD5: Final = "md5"
CRC32: Final = "crc32"
GIT_SHA1: Final = "git-sha1"
"""Name of a git object: SHA-1 of a header with the size, and the content."""
_BLOCK: Final = 8 * 1024 * 1024
_WEIGHTS: Final = re.compile(r"model(-\d+-of-\d+)?\.safetensors")
_OTHERS: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.(json|txt|model|jinja|tiktoken)")


class WeightsError(Exception):
    """What cannot be fetched, however often it is tried; one line."""


class _Crc32:
    def __init__(self) -> None:
        self._value = 0

    def update(self, content: bytes) -> None:
        self._value = zlib.crc32(content, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(4, "big")


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """One file of a model, and its checksum as the place states it."""

    name: str
    """Its name in the model's folder."""
    bytes: int
    algorithm: str
    digest: str
    """Hexadecimal, in lower case."""
    part_bytes: int = 0
    """Size of each part but the last, if S3 states the checksum of the parts' checksums; 0: of the whole content.

    docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity.html
    """

    def verify(self, path: Path) -> str:
        """Return the SHA-256 of a local file; empty if its content is not what the place states."""
        own, parts = hashlib.sha256(), []
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size != self.bytes:
                return ""
            for start in range(0, size or 1, self.part_bytes or size or 1):
                running = self._new()
                left = min(self.part_bytes or size, size - start)
                while block := stream.read(min(_BLOCK, left)):
                    own.update(block)
                    running.update(block)
                    left -= len(block)
                parts.append(running.digest())
        digest = parts[0]
        if self.part_bytes:
            running = self._new()
            running.update(b"".join(parts))
            digest = running.digest()
        return own.hexdigest() if digest.hex() == self.digest else ""

    def _new(self) -> Any:
        if self.algorithm == CRC32:
            return _Crc32()
        if self.algorithm == GIT_SHA1:
            return hashlib.sha1(f"blob {self.bytes}\0".encode(), usedforsecurity=False)
        return hashlib.new(self.algorithm, usedforsecurity=False)


class Place(Protocol):
    """A hub or a bucket. Methods raise WeightsError and RetryableError."""

    def files(self) -> list[RemoteFile]:
        """Return the files of the model for which `is_wanted` holds."""

    def download(self, files: list[RemoteFile], folder: Path, progress: ProgressCallback) -> None:
        """Write files into a folder; their content is not checked here.

        A file is there when it is complete: what a killed call has fetched is not fetched again.
        """


def is_wanted(name: str) -> bool:
    """Return whether a file is fetched: configuration, safetensors and tokenizer, as transformers names them.

    No pickles, no copies in other formats, nothing in subfolders, no hidden file.
    """
    return bool(_WEIGHTS.fullmatch(name) or _OTHERS.fullmatch(name))


def is_weights(name: str) -> bool:
    """Return whether a file holds weights."""
    return bool(_WEIGHTS.fullmatch(name))
