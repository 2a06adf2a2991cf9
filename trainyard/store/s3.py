"""Checkpoints on S3, below s3://BUCKET/PREFIX as if that were a run directory.

    checkpoints/step-00000042/attempt-00000003/model...   files, in a folder of the attempt's own
    checkpoints/step-00000042/manifest.json               makes them a checkpoint (s3_manifests.py)
    checkpoints/last-known-good.json
    attempts/attempt-00000003.json                        see s3_fence.py

An attempt writes only into its own folders, so a late upload is harmless, and its manifest names the
attempt. Files next to the manifest, as exported by a file system, are read as well. Throttling and
connection errors are retried; an unreachable bucket is an OSError, never a corrupt checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Final, Self

from trainyard.contract import CHECKPOINTS_DIR
from trainyard.objects import AccessDenied, ObjectMissing, Objects
from trainyard.objects.client import READERS
from trainyard.objects.upload import Uploader
from trainyard.store import s3_manifests
from trainyard.store.interface import CheckpointStore, folder_name, parse_step
from trainyard.store.manifest import (
    MANIFEST_FILE,
    CorruptCheckpoint,
    Manifest,
    UnknownFormat,
)
from trainyard.store.s3_fence import newest_attempt
from trainyard.store.s3_manifests import S3Upload, attempt_folder

_KNOWN_GOOD: Final = "last-known-good.json"
_SET_ASIDE: Final = "manifest-set-aside.json"
_FORGET_S: Final = 3600.0
"""Age at which a mark may be removed. S3 rejects requests signed more than 15 minutes ago, so no write
that read the object before the mark can still arrive."""
_ATTEMPT: Final = re.compile(r"step-[0-9]+/attempt-([0-9]{8})/.*")


class S3Source:
    """Reads an object from its beginning, with several ranges in flight on shared `threads`."""

    def __init__(self, objects: Objects, name: str, size: int, threads: ThreadPoolExecutor) -> None:
        self._pieces = objects.read_ahead(name, size, threads)
        self._current = memoryview(b"")

    def readinto(self, out: memoryview, /) -> int:
        """Read the next bytes; return 0 at the end. Raises ObjectError."""
        if not self._current:
            self._current = memoryview(next(self._pieces, b""))
        count = min(len(out), len(self._current))
        out[:count] = self._current[:count]
        self._current = self._current[count:]
        return count

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pieces.close()


class S3Store(CheckpointStore):
    """A CheckpointStore on S3; `run` is the run's location. Thread-safe, not to be used after a fork."""

    def __init__(self, run: Objects, uploader: Uploader | None = None) -> None:
        self._run = run
        self._objects = run.below(CHECKPOINTS_DIR)
        self._uploader = uploader or Uploader()
        self._manifests: dict[int, Manifest] = {}
        """Cache of manifests, so that one is not read again for each of its files."""
        self._closed: dict[int, float] = {}
        """Steps that this process has deleted, with the monotonic time in seconds."""
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="s3-read")

    @property
    def place(self) -> str:
        return self._objects.location.url()

    def steps(self) -> list[int]:
        """Return steps with a published manifest, ascending. Raises ObjectError."""
        steps = sorted(
            step for name in self._objects.folders() if (step := parse_step(name)) is not None
        )
        there = self._readers.map(self._is_published, steps)
        return [step for step, published in zip(steps, there, strict=True) if published]

    def manifest(self, step: int) -> Manifest:
        """Return the manifest of this step. Raises CorruptCheckpoint or ObjectError."""
        self._manifests.pop(step, None)
        entry = s3_manifests.read_entry(self._objects, step)
        if not entry.published:
            raise CorruptCheckpoint(f"{MANIFEST_FILE}: not found")
        self._manifests[step] = entry.manifest(step)
        return self._manifests[step]

    def open(self, step: int, name: str) -> S3Source:
        """Open a file with read-ahead. Raises CorruptCheckpoint or ObjectError."""
        for stored in self._names(step, name):
            with contextlib.suppress(ObjectMissing):
                size = self._objects.size(stored)
                return S3Source(self._objects, stored, size, self._readers)
        raise CorruptCheckpoint(f"{name}: not found")

    def begin(self, step: int, attempt: int) -> S3Upload:
        """Start this rank's upload; sends no request yet."""
        self._closed.pop(step, None)
        self._manifests.pop(step, None)
        return S3Upload(self, self._objects, self._uploader, step, attempt)

    def delete(self, step: int) -> None:
        """Close the step, then remove its files. Raises ObjectError."""
        names = {entry.name for entry in self._objects.list(f"{folder_name(step)}/")}
        if names:
            s3_manifests.close_step(self._objects, step, even_published=True)
            self._objects.delete(names - {s3_manifests.manifest_name(step)})
            self._closed[step] = time.monotonic()
        self._forget_closed()

    def set_aside(self, step: int) -> None:
        """Close the step; its files stay, and its manifest under another name. Raises ObjectError."""
        entry = s3_manifests.close_step(self._objects, step, even_published=True)
        if entry.published:
            self._objects.put(f"{folder_name(step)}/{_SET_ASIDE}", entry.content)

    def sweep(self, before: int | None = None) -> None:
        """Remove what unfinished writes and corrupt checkpoints left behind. Raises ObjectError."""
        newest = newest_attempt(self._run) if before is None else before
        self._abort_uploads(newest)
        for name in list(self._objects.folders()):
            step = parse_step(name)
            if step is not None:
                self._sweep_step(step, newest)

    def mark_known_good(self, step: int) -> None:
        """A small object, replaced whole. Raises ObjectError."""
        self._objects.put(_KNOWN_GOOD, json.dumps({"step": step}).encode() + b"\n")

    def _known_good(self) -> bytes:
        return self._objects.read(_KNOWN_GOOD)

    def _is_published(self, step: int) -> bool:
        if step in self._closed:
            return False
        try:
            return self._objects.size(s3_manifests.manifest_name(step)) > s3_manifests.MARK_BYTES
        except ObjectMissing:
            return False

    def _names(self, step: int, name: str) -> tuple[str, str]:
        """Return possible names of a file: in its attempt's folder, or next to the manifest."""
        own = attempt_folder(step, self._known_manifest(step).attempt)
        return f"{own}/{name}", f"{folder_name(step)}/{name}"

    def _known_manifest(self, step: int) -> Manifest:
        return self._manifests.get(step) or self.manifest(step)

    def _sweep_step(self, step: int, newest: int) -> None:
        """Remove the files of attempts before `newest` that no manifest names, and old marks."""
        entries = list(self._objects.list(f"{folder_name(step)}/"))
        entry = s3_manifests.read_entry(self._objects, step)
        keep = newest
        if entry.published:
            try:
                keep = entry.manifest(step).attempt
            except (CorruptCheckpoint, UnknownFormat):
                return  # a load finds it corrupt and sets it aside
        left = {e.name for e in entries if _is_of_attempt(e.name, before=newest, but=keep)}
        left |= {e.name for e in entries if e.name == f"{folder_name(step)}/{_SET_ASIDE}"}
        if left and not entry.published:
            entry = s3_manifests.close_step(self._objects, step)
            if entry.published:
                return  # published just now by that attempt: these are its files
        self._objects.delete(left)
        marks = [e for e in entries if e.bytes <= s3_manifests.MARK_BYTES and e.age_s > _FORGET_S]
        if entries == marks and not entry.published:
            self._objects.delete([mark.name for mark in marks])

    def _abort_uploads(self, newest: int) -> None:
        """Abort multipart uploads of attempts before `newest`: their parts are billed."""
        try:
            uploads = list(self._objects.unfinished_uploads("step-"))
        except AccessDenied:
            return  # the role may lack this permission; the bucket's lifecycle rule aborts them in days
        for name, upload in uploads:
            if _is_of_attempt(name, before=newest):
                with contextlib.suppress(ObjectMissing):
                    self._objects.call("abort_multipart_upload", name, UploadId=upload)

    def _forget_closed(self) -> None:
        """Remove marks of this process's deletions once no older write can arrive any more."""
        limit = time.monotonic() - _FORGET_S
        old = [step for step, closed in self._closed.items() if closed < limit]
        self._objects.delete([s3_manifests.manifest_name(step) for step in old])
        for step in old:
            del self._closed[step]


def _is_of_attempt(name: str, *, before: int, but: int | None = None) -> bool:
    """Return whether an object belongs to an attempt before `before` other than `but`."""
    match = _ATTEMPT.fullmatch(name)
    return match is not None and int(match[1]) < before and int(match[1]) != but
