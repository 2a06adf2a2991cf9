"""One rank's upload to S3, and the manifest object that makes a checkpoint visible there: who may write it.

    checkpoints/step-00000042/manifest.json

is missing (free), a mark of at most MARK_BYTES (closed), or a manifest (published). S3 has no rename
but conditional writes. A publisher reads the object, checks the fence, and writes only if the object
is unchanged. Before files that a manifest might name are removed, the step is closed: a delayed
manifest of a partitioned or paused process then fails its condition. Each mark is unique.
"""

from __future__ import annotations

import contextlib
import dataclasses
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from trainyard.objects import ObjectError, ObjectExists, ObjectMissing, Objects
from trainyard.objects.upload import Uploader
from trainyard.store.interface import CheckpointStore, Chunk, folder_name
from trainyard.store.manifest import (
    MANIFEST_FILE,
    Content,
    CorruptCheckpoint,
    FileRecord,
    Manifest,
    UnknownFormat,
)

MARK_BYTES: Final = 100
"""Every manifest is longer."""
_TURNS: Final = 10
"""Attempts, as others may change the object between reading and writing it."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Content of a manifest object."""

    content: bytes
    etag: str | None
    """None if the object does not exist."""

    @property
    def published(self) -> bool:
        """Whether a reader sees a checkpoint."""
        return len(self.content) > MARK_BYTES

    def manifest(self, step: int) -> Manifest:
        """Parse the manifest of this step. Raises CorruptCheckpoint."""
        try:
            manifest = Manifest.from_json(self.content.decode())
        except UnicodeDecodeError as error:
            raise CorruptCheckpoint(f"{MANIFEST_FILE}: {error}") from None
        if manifest.step != step:
            raise CorruptCheckpoint(f"{MANIFEST_FILE}: is of step {manifest.step}, not {step}")
        return manifest


def manifest_name(step: int) -> str:
    return f"{folder_name(step)}/{MANIFEST_FILE}"


def read_entry(checkpoints: Objects, step: int) -> Entry:
    """Read the object. Raises ObjectError."""
    try:
        content, etag = checkpoints.read_tagged(manifest_name(step))
    except ObjectMissing:
        return Entry(content=b"", etag=None)
    return Entry(content=content, etag=etag)


def closing_mark(why: str) -> bytes:
    """Return a mark's content. A mark that was used before does not close a step again."""
    text = f"closed: {why}\n".encode()
    assert len(text) <= MARK_BYTES
    return text


def close_step(
    checkpoints: Objects, step: int, *, why: str | None = None, even_published: bool = False
) -> Entry:
    """Invalidate every publication of this step in progress; return the previous entry.

    A published step is left alone unless `even_published`. Ranks that close together pass the same
    `why`, and the first closes for all; None uses a unique one. Raises ObjectError.
    """
    text = closing_mark(why or uuid.uuid4().hex)
    for _ in range(_TURNS):
        entry = read_entry(checkpoints, step)
        if entry.content == text or (entry.published and not even_published):
            return entry
        try:
            checkpoints.create(manifest_name(step), text, instead_of=entry.etag)
        except (ObjectExists, ObjectMissing):
            continue
        return entry
    raise ObjectExists(
        f"{checkpoints.location.url(manifest_name(step))}: changed {_TURNS} times by other writers"
    )


_CLEAN_UP_S: Final = 10.0
"""Time to remove a failed save's files; the next attempt's sweep removes the rest."""


def attempt_folder(step: int, attempt: int) -> str:
    """`step-00000042/attempt-00000003`"""
    return f"{folder_name(step)}/attempt-{attempt:08d}"


class S3Upload:
    """An Upload into the attempt's own folder, published by its manifest."""

    def __init__(
        self,
        store: CheckpointStore,
        checkpoints: Objects,
        uploader: Uploader,
        step: int,
        attempt: int,
    ) -> None:
        self._store = store
        self._checkpoints = checkpoints
        self._objects = checkpoints.with_deadline(float("inf"))
        self._uploader = uploader
        self._step = step
        self._attempt = attempt
        self._gave_up = f"attempt {attempt:08d} gave up"

    def put(self, name: str, chunks: Sequence[Chunk]) -> FileRecord:
        """Write one file. Raises ObjectError."""
        stored = f"{attempt_folder(self._step, self._attempt)}/{name}"
        content = Content()
        self._uploader.write(self._objects, stored, chunks, content.update)
        return content.record()

    def commit(self, manifest: Manifest, fence: Callable[[], None]) -> Manifest:
        """Publish by one conditional write, see  Raises ObjectError or StaleAttempt."""
        self._check_files(manifest)
        content = manifest.to_json().encode()
        name = manifest_name(self._step)
        for _ in range(_TURNS):
            entry = read_entry(self._objects, self._step)
            if entry.content == closing_mark(self._gave_up):
                raise ObjectError(f"{self._objects.location.url(name)}: another rank gave up")
            if entry.published and entry.content != content:
                if not self._store.verify(self._step):
                    self.abort()
                    return self._store.manifest(self._step)
                self._store.set_aside(self._step)
                continue
            fence()
            try:
                self._objects.create(name, content, instead_of=entry.etag)
            except (ObjectExists, ObjectMissing):
                continue
            return manifest
        raise ObjectExists(
            f"{self._objects.location.url(name)}: changed {_TURNS} times by other writers"
        )

    def abort(self) -> None:
        """Cancel requests, close the step and remove the attempt's files; never raises.

        No effect when this attempt has published, which this rank may not know.
        """
        self._objects.cancelled.set()
        # A new `cancelled` event: the cleanup must not be cancelled.
        objects = dataclasses.replace(self._checkpoints).with_deadline(_CLEAN_UP_S)
        with contextlib.suppress(ObjectError, CorruptCheckpoint, UnknownFormat):
            entry = close_step(objects, self._step, why=self._gave_up)
            if entry.published and entry.manifest(self._step).attempt == self._attempt:
                return
            folder = f"{attempt_folder(self._step, self._attempt)}/"
            objects.delete([found.name for found in objects.list(folder)])

    def _check_files(self, manifest: Manifest) -> None:
        """Check existence and size of every file; one request per 1,000 files."""
        folder = f"{attempt_folder(self._step, self._attempt)}/"
        there = {e.name.removeprefix(folder): e.bytes for e in self._objects.list(folder)}
        for name, record in manifest.files.items():
            if there.get(name) != record.bytes:
                raise ObjectError(f"{name}: size differs from what was written")
