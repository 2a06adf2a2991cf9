"""Objects of one location: list, read, write on a condition, delete.

Each call is retried within its RetryPolicy. A write that returned an error may have happened: then the
object's content decides, so that no completed write is reported as failed.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import random
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar

from trainyard.objects.connection import (
    Connection,
    ObjectError,
    ObjectExists,
    ObjectMissing,
    RetryPolicy,
    classify_error,
)
from trainyard.objects.location import Location

_Answer = TypeVar("_Answer")

CHUNK_BYTES: Final = 8 * 1024 * 1024
"""Size of a chunk that `chunks` reads."""
READERS: Final = 8
"""Such pieces under way at a time: 64 MiB of memory for each object that is being read.

Count on 85 to 90 MB/s for each, see upload.py.
"""
_LISTED_AT_ONCE: Final = 1000
_LIST_MARKERS: Final = {"ContinuationToken": "NextContinuationToken"}
_UPLOAD_MARKERS: Final = {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"}
CONNECTIONS: Final = 16
"""At most so many requests at a time; more threads wait for one of them."""


@dataclass(frozen=True, kw_only=True)
class ListedObject:
    name: str
    """Its key below the location's prefix."""
    bytes: int
    etag: str
    age_s: float
    """Seconds since it was written, by S3's clock."""


@dataclass(frozen=True, kw_only=True)
class Objects:
    """The objects below one location. Methods raise ObjectError. Threads may share it."""

    location: Location
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    until: float = float("inf")
    """Monotonic seconds after which nothing is retried; the RetryPolicy may end retries earlier."""
    cancelled: threading.Event = field(default_factory=threading.Event)
    """Once set, nothing is retried."""
    rng: random.Random = field(default_factory=random.Random, repr=False)
    """Of the pauses between tries."""
    connection: Connection = field(
        default_factory=lambda: Connection(
            answer_s=RetryPolicy().answer_s, connections=CONNECTIONS
        ),
        repr=False,
    )

    @classmethod
    def at(cls, url: str, retry: RetryPolicy | None = None, seed: int | None = None) -> Objects:
        """Return the objects below `s3://BUCKET/PREFIX`; connects lazily. Raises BadLocation."""
        retry = retry or RetryPolicy()
        return cls(
            location=Location.parse(url),
            retry=retry,
            rng=random.Random(seed),
            connection=Connection(answer_s=retry.answer_s, connections=CONNECTIONS),
        )

    def below(self, name: str) -> Objects:
        """Return the objects of a folder, over the same connection."""
        return dataclasses.replace(self, location=self.location.below(name))

    def with_deadline(self, seconds: float) -> Objects:
        """Return the same objects without retries after `seconds` from now or once cancelled."""
        until = min(self.until, time.monotonic() + seconds)
        return dataclasses.replace(self, until=until, cancelled=threading.Event())

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ListedObject]:
        """Yield objects whose name begins with `prefix` and sorts after `after`, sorted by name."""
        more = {"StartAfter": self.location.key(after)} if after else {}
        for page in self._pages("list_objects_v2", prefix, _LIST_MARKERS, more):
            now = parsedate_to_datetime(page["ResponseMetadata"]["HTTPHeaders"]["date"])
            for entry in page.get("Contents", ()):
                yield ListedObject(
                    name=self._name(entry["Key"]),
                    bytes=entry["Size"],
                    etag=entry["ETag"],
                    age_s=(now - entry["LastModified"]).total_seconds(),
                )

    def folders(self) -> Iterator[str]:
        """Yield distinct names up to their first slash."""
        for page in self._pages("list_objects_v2", "", _LIST_MARKERS, {"Delimiter": "/"}):
            for entry in page.get("CommonPrefixes", ()):
                yield self._name(entry["Prefix"]).removesuffix("/")

    def unfinished_uploads(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        for page in self._pages("list_multipart_uploads", prefix, _UPLOAD_MARKERS, {}):
            for entry in page.get("Uploads", ()):
                yield self._name(entry["Key"]), entry["UploadId"]

    def size(self, name: str) -> int:
        """Return the size of an object in bytes. Raises ObjectMissing."""
        return int(self.call("head_object", name)["ContentLength"])

    def read(self, name: str, start: int = 0, count: int | None = None) -> bytes:
        """Return `count` bytes from `start`, or the rest. Raises ObjectMissing."""
        return self.read_tagged(name, start, count)[0]

    def read_tagged(self, name: str, start: int = 0, count: int | None = None) -> tuple[bytes, str]:
        """Return bytes as `read`, and the object's ETag."""
        if count == 0:
            return b"", ""
        end = "" if count is None else start + count - 1
        which = {"Range": f"bytes={start}-{end}"} if start or count is not None else {}

        def whole(answer: Any) -> tuple[bytes, str]:
            content = answer["Body"].read()
            if count is not None and len(content) != count:
                got = f"got {len(content)} of {count} bytes from {start}"
                raise ObjectError(f"{self.location.url(name)}: {got}")
            return content, answer["ETag"]

        return self._try(lambda client: whole(self._ask(client, "get_object", name, which)), name)

    def chunks(self, name: str, *, count: int | None = None) -> Iterator[bytes]:
        """Yield an object in chunks with read-ahead. Raises ObjectMissing.

        `count` is the size if known, which saves a request.
        """
        size = self.size(name) if count is None else count
        with ThreadPoolExecutor(READERS, thread_name_prefix="s3-read") as threads:
            yield from self.read_ahead(name, size, threads)

    def read_ahead(
        self, name: str, size: int, threads: ThreadPoolExecutor
    ) -> Generator[bytes, None, None]:
        """Yield the first `size` bytes of an object, CHUNK_BYTES at a time.

        At most READERS chunks are in flight or waiting; none once the iterator is closed.
        """
        objects = self.with_deadline(float("inf"))
        jobs: deque[Future[bytes]] = deque()
        asked = 0
        try:
            while jobs or asked < size:
                while asked < size and len(jobs) < READERS:
                    count = min(CHUNK_BYTES, size - asked)
                    jobs.append(threads.submit(objects.read, name, asked, count))
                    asked += count
                yield jobs.popleft().result()
        finally:
            objects.cancelled.set()
            for job in jobs:
                job.cancel()

    def put(self, name: str, content: bytes) -> str:
        """Write an object unconditionally; S3 verifies its CRC-32. Returns its ETag."""
        return self._put(name, content, {})

    def create(self, name: str, content: bytes, *, instead_of: str | None = None) -> str:
        """Create an object, or replace the one with ETag `instead_of`. Returns the ETag.

        `content` must be unique: if the condition fails but the object has this content, an earlier
        try has written it. Raises ObjectExists.
        """
        condition = {"IfMatch": instead_of} if instead_of else {"IfNoneMatch": "*"}
        try:
            return self._put(name, content, condition)
        except (ObjectExists, ObjectMissing):
            found, etag = b"", ""
            with contextlib.suppress(ObjectMissing):
                found, etag = self.read_tagged(name)
            if found != content:
                raise
            return etag

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; missing ones are ignored."""
        left = list(names)
        while left:
            now, left = left[:_LISTED_AT_ONCE], left[_LISTED_AT_ONCE:]
            keys = [{"Key": self.location.key(name)} for name in now]
            answer = self.call("delete_objects", key=None, Delete={"Objects": keys, "Quiet": True})
            for refused in answer.get("Errors", ()):
                raise ObjectError(f"delete {refused['Key']}: {refused.get('Code')}")

    def call(self, operation: str, name: str = "", *, key: str | None = "Key", **more: Any) -> Any:
        """Call a botocore operation on an object of this location, with retries."""
        return self._try(lambda client: self._ask(client, operation, name, more, key), name)

    def _pages(
        self, operation: str, prefix: str, markers: Mapping[str, str], more: Mapping[str, str]
    ) -> Iterator[Any]:
        """Yield every page of a list; `markers` maps request fields to those of the page before."""
        following = dict(more)
        while True:
            page = self.call(operation, prefix, key="Prefix", **following)
            yield page
            if not page.get("IsTruncated"):
                return
            following |= {ask: page[told] for ask, told in markers.items()}

    def _name(self, key: str) -> str:
        return key.removeprefix(self.location.prefix)

    def _put(self, name: str, content: bytes, more: dict[str, str]) -> str:
        checksum = crc32(content)
        answer = self.call("put_object", name, Body=content, ChecksumCRC32=checksum, **more)
        return str(answer["ETag"])

    def _ask(
        self, client: Any, operation: str, name: str, more: Any, key: str | None = "Key"
    ) -> Any:
        named = {key: self.location.key(name)} if key else {}
        return getattr(client, operation)(Bucket=self.location.bucket, **named, **more)

    def _try(self, request: Callable[[Any], _Answer], name: str) -> _Answer:
        last = min(self.until, time.monotonic() + self.retry.total_s)
        tries = 0
        while True:
            client: Any = None
            try:
                client = self.connection.client()
                return request(client)
            except ObjectError:
                raise
            except Exception as error:
                finding = classify_error(error, self.location.url(name))
                pause = self.retry.pause_s(tries, self.rng)
                if not finding.again or time.monotonic() + pause > last:
                    raise finding.error from None
                if finding.renew:
                    self.connection.renew(client)
            tries += 1
            if self.cancelled.wait(pause):
                raise finding.error


def crc32(content: bytes | bytearray) -> str:
    """Return the CRC-32 of a request's body as S3 expects it."""
    return base64.b64encode(zlib.crc32(content).to_bytes(4, "big")).decode()
