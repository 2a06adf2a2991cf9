"""A model's folder in S3, with credentials from the environment only."""

from __future__ import annotations

import base64
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from trainer.weights.checksums import CRC32, MD5, SHA256, Checksum
from trainer.weights.files import MOST_FILES, RemoteFile, TransientError, WeightsError, is_wanted
from trainer.weights.reference import BucketModel
from trainyard.objects import ListedObject, ObjectError, Objects, ObjectsUnavailable
from trainyard.objects.client import CHUNK_BYTES

_STATED: Final = (("ChecksumSHA256", SHA256), ("ChecksumCRC32", CRC32))
_ETAG: Final = re.compile(r'"([0-9a-f]{32}(-\d+)?)"')


class Bucket:
    """The objects below a prefix."""

    def __init__(self, model: BucketModel) -> None:
        self._objects = Objects.at(f"{model.location.url()}/")

    def files(self) -> list[RemoteFile]:
        """Return the wanted objects. Raises WeightsError for one whose content could not be verified."""
        try:
            listed = list(itertools.islice(self._objects.list(), MOST_FILES + 1))
            if len(listed) > MOST_FILES:
                raise WeightsError(f"{self._objects.location.url()}: has over {MOST_FILES} objects")
            return [self._file(one) for one in listed if is_wanted(one.name)]
        except ObjectError as error:
            raise _converted(error) from None

    def append(self, file: RemoteFile, part: Path, progress: Callable[[int], None]) -> None:
        """Continue the object at the end of `part`."""
        try:
            with part.open("ab") as stream:
                at = stream.tell()
                while at < file.bytes:
                    count = min(CHUNK_BYTES, file.bytes - at)
                    content, tag = self._objects.read_tagged(file.name, at, count)
                    if tag != file.tag:
                        url = self._objects.location.url(file.name)
                        raise WeightsError(f"{url}: changed while it was fetched")
                    stream.write(content)
                    at += len(content)
                    progress(at)
        except ObjectError as error:
            raise _converted(error) from None

    def _file(self, listed: ListedObject) -> RemoteFile:
        head = self._objects.call("head_object", listed.name, ChecksumMode="ENABLED")
        known = tuple(self._checksums(listed, head))
        if not known:
            raise WeightsError(
                f"{self._objects.location.url(listed.name)}: S3 has no checksum of it that can be verified; must "
                "be SHA-256, CRC-32 or MD5; upload it with --checksum-algorithm SHA256"
            )
        return RemoteFile(
            name=listed.name, bytes=listed.bytes, checksums=known[:1], tag=listed.etag
        )

    def _checksums(self, listed: ListedObject, head: Any) -> Iterator[Checksum]:
        """Yield the checksums of an object, the strongest first. With KMS, an ETag is not one."""
        for field, algorithm in _STATED:
            digest, _, parts = head.get(field, "").partition("-")
            if digest:
                yield from self._of_parts(
                    listed, algorithm, base64.b64decode(digest).hex(), int(parts or 0)
                )
        encrypted = head.get("ServerSideEncryption", "AES256") != "AES256"
        etag = _ETAG.fullmatch(head["ETag"])
        if etag and not encrypted and "SSECustomerAlgorithm" not in head:
            digest, _, parts = etag[1].partition("-")
            yield from self._of_parts(listed, MD5, digest, int(parts or 0))

    def _of_parts(
        self, listed: ListedObject, algorithm: str, digest: str, parts: int
    ) -> Iterator[Checksum]:
        """Yield a checksum; none if the parts are not of one size, as of a copy from several objects."""
        if not parts:
            yield Checksum(algorithm=algorithm, digest=digest)
            return
        first = self._objects.call("head_object", listed.name, PartNumber=1)
        size = int(first["ContentLength"])
        if size and -(-listed.bytes // size) == parts:
            yield Checksum(algorithm=algorithm, digest=digest, part_bytes=size)


def _converted(error: ObjectError) -> Exception:
    kind = TransientError if isinstance(error, ObjectsUnavailable) else WeightsError
    return kind(str(error))
