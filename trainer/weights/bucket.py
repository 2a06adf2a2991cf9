"""A model's folder in S3, with credentials from the environment only."""

from __future__ import annotations

import base64
import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from trainer.prepare.command import RetryableError
from trainer.prepare.progress import ProgressCallback
from trainer.weights.files import (
    CRC32,
    MD5,
    MOST_FILES,
    SHA256,
    RemoteFile,
    WeightsError,
    is_wanted,
)
from trainer.weights.reference import BucketModel
from trainyard.objects import ListedObject, ObjectError, Objects, ObjectsUnavailable

_STATED: Final = (("ChecksumSHA256", SHA256), ("ChecksumCRC32", CRC32))
_ETAG: Final = re.compile(r'"([0-9a-f]{32}(-\d+)?)"')


class Bucket:
    """The objects below a prefix."""

    def __init__(self, model: BucketModel) -> None:
        self._objects = Objects.at(f"{model.location.url()}/")

    def files(self) -> list[RemoteFile]:
        """Return the wanted objects. Raises WeightsError for one whose content could not be verified."""
        with _converted():
            listed = list(itertools.islice(self._objects.list(), MOST_FILES + 1))
            if len(listed) > MOST_FILES:
                raise WeightsError(f"{self._objects.location.url()}: has over {MOST_FILES} objects")
            return [self._file(one) for one in listed if is_wanted(one.name)]

    def download(self, files: list[RemoteFile], folder: Path, progress: ProgressCallback) -> None:
        """Write objects into a folder, one after another."""
        total, done = sum(one.bytes for one in files), 0
        part = folder / ".part"
        for file in files:
            with _converted(), part.open("wb") as stream:
                for chunk in self._objects.chunks(file.name, count=file.bytes):
                    stream.write(chunk)
                    done += len(chunk)
                    progress("fetching", done, total)
            part.rename(folder / file.name)

    def _file(self, listed: ListedObject) -> RemoteFile:
        head = self._objects.call("head_object", listed.name, ChecksumMode="ENABLED")
        for algorithm, digest, parts in _checksums(head):
            # Parts of different sizes, as of a copy from several objects, cannot be told from here.
            size = self._first_part(listed.name) if parts else 0
            if not parts or (size and -(-listed.bytes // size) == parts):
                return RemoteFile(
                    name=listed.name,
                    bytes=listed.bytes,
                    algorithm=algorithm,
                    digest=digest,
                    part_bytes=size,
                )
        raise WeightsError(
            f"{self._objects.location.url(listed.name)}: S3 has no checksum of it that can be verified; must "
            "be SHA-256, CRC-32 or MD5; upload it with --checksum-algorithm SHA256"
        )

    def _first_part(self, name: str) -> int:
        return int(self._objects.call("head_object", name, PartNumber=1)["ContentLength"])


def _checksums(head: Any) -> Iterator[tuple[str, str, int]]:
    """Yield algorithm, digest and number of parts (0: of the whole object), the strongest first."""
    for field, algorithm in _STATED:
        digest, _, parts = head.get(field, "").partition("-")
        if digest:
            yield algorithm, base64.b64decode(digest).hex(), int(parts or 0)
    encrypted = head.get("ServerSideEncryption", "AES256") != "AES256"
    etag = _ETAG.fullmatch(head["ETag"])
    if etag and not encrypted and "SSECustomerAlgorithm" not in head:  # with KMS it is no checksum
        digest, _, parts = etag[1].partition("-")
        yield MD5, digest, int(parts or 0)


@contextmanager
def _converted() -> Iterator[None]:
    try:
        yield
    except ObjectsUnavailable as error:
        raise RetryableError(str(error)) from None
    except ObjectError as error:
        raise WeightsError(str(error)) from None
