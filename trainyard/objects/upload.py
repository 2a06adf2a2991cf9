"""Multipart upload of chunks of memory, parts in parallel through reused buffers.

    pieces --copy + hash--> a free buffer --CRC-32, request--> S3      (at most `lanes` at a time)

S3 verifies each part by CRC-32; the caller's hash is of the whole, for readers. A small object is one
request. A failed upload is aborted: its parts would be billed.
"""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from trainyard.objects.client import Objects, crc32
from trainyard.objects.connection import ObjectError, ObjectMissing

PART_BYTES: Final = 16 * 1024 * 1024
LANES: Final = 8
"""Buffers, and parts on their way at a time: 128 MiB of memory per rank with parts of this size.

Count on 85 to 90 MB/s for each: "Performance design patterns for Amazon S3" in its user guide.
"""
_MAX_PARTS: Final = 10_000
"""docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html"""
_BLOCK: Final = 1024 * 1024
"""Block to copy and hash: small enough to stay in the CPU cache in between."""
_ABORT_S: Final = 5.0

Observe = Callable[[memoryview], object]
"""Receives the content in order, for a hash of the whole."""
Part = dict[str, Any]
"""PartNumber, ETag and ChecksumCRC32, as complete_multipart_upload expects them."""


class Uploader:
    """Writes objects through its own buffers and threads. Thread-safe."""

    def __init__(self, *, part_bytes: int = PART_BYTES, lanes: int = LANES) -> None:
        self._part_bytes = part_bytes
        self._threads = ThreadPoolExecutor(lanes, thread_name_prefix="s3-upload")
        self._free: queue.SimpleQueue[bytearray] = queue.SimpleQueue()
        for _ in range(lanes):
            self._free.put(bytearray())

    def write(
        self,
        objects: Objects,
        name: str,
        chunks: Sequence[bytes | memoryview],
        observe: Observe | None = None,
    ) -> int:
        """Write the concatenation of `chunks` to `name`; return its size in bytes.

        `chunks` are bytes or 1-D memoryviews of format B. Raises ObjectError; then the object does
        not exist, unless S3 became unreachable.
        """
        total = sum(len(chunk) for chunk in chunks)
        if total <= self._part_bytes:
            content = b"".join(chunks)
            if observe:
                observe(memoryview(content))
            objects.put(name, content)
            return total
        number = str(objects.call("create_multipart_upload", name, **_CHECKED)["UploadId"])
        try:
            self._send_all(objects, name, number, _Pieces(chunks, observe), total)
        except BaseException:
            with contextlib.suppress(ObjectError):
                objects.with_deadline(_ABORT_S).call(
                    "abort_multipart_upload", name, UploadId=number
                )
            raise
        return total

    def _send_all(
        self, objects: Objects, name: str, number: str, pieces: _Pieces, total: int
    ) -> None:
        size = max(self._part_bytes, -(-total // _MAX_PARTS))
        sent: list[Future[Part]] = []
        try:
            for start in range(0, total, size):
                buffer = self._free.get()
                if any(job.done() and job.exception() for job in sent):
                    self._free.put(buffer)
                    break
                buffer = buffer if len(buffer) >= size else bytearray(size)
                count = min(size, total - start)
                pieces.fill(memoryview(buffer)[:count])
                job = (objects, name, number, len(sent) + 1, buffer, count)
                sent.append(self._threads.submit(self._send, *job))
        finally:
            parts = [job.exception() or job.result() for job in sent]
        for part in parts:
            if isinstance(part, BaseException):
                raise part
        self._complete(objects, name, number, parts, total)

    def _send(
        self, objects: Objects, name: str, upload: str, number: int, buffer: bytearray, count: int
    ) -> Part:
        try:
            body = buffer if count == len(buffer) else bytes(memoryview(buffer)[:count])
            checksum = crc32(body)
            answer = objects.call(
                "upload_part",
                name,
                UploadId=upload,
                PartNumber=number,
                Body=body,
                ChecksumCRC32=checksum,
            )
            return {"PartNumber": number, "ETag": answer["ETag"], "ChecksumCRC32": checksum}
        finally:
            self._free.put(buffer)

    def _complete(
        self, objects: Objects, name: str, upload: str, parts: Sequence[Any], total: int
    ) -> None:
        try:
            parts_of_it = {"Parts": list(parts)}
            objects.call(
                "complete_multipart_upload", name, UploadId=upload, MultipartUpload=parts_of_it
            )
        except ObjectMissing:
            # An earlier try succeeded but returned an error; this upload id is private, so an
            # object of this size is this upload's.
            if objects.size(name) != total:
                raise


_CHECKED: Final = {"ChecksumAlgorithm": "CRC32"}


class _Pieces:
    """The concatenation of chunks, copied in order."""

    def __init__(self, chunks: Sequence[bytes | memoryview], observe: Observe | None) -> None:
        self._blocks = _blocks(chunks)
        self._observe = observe
        self._left = memoryview(b"")

    def fill(self, out: memoryview) -> None:
        """Fill `out` with the next bytes; there must be as many."""
        filled = 0
        while filled < len(out):
            if not self._left:
                self._left = next(self._blocks)
            block = self._left[: len(out) - filled]
            out[filled : filled + len(block)] = block
            if self._observe:
                self._observe(block)
            filled, self._left = filled + len(block), self._left[len(block) :]


def _blocks(chunks: Sequence[bytes | memoryview]) -> Iterator[memoryview]:
    for chunk in chunks:
        whole = memoryview(chunk)
        for start in range(0, len(whole), _BLOCK):
            yield whole[start : start + _BLOCK]
