"""One rank's upload of a checkpoint to S3."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Final

from trainyard.objects import ObjectError, ObjectExists, ObjectMissing, Objects
from trainyard.objects.upload import Uploader
from trainyard.store import s3_manifests
from trainyard.store.interface import CheckpointStore, Chunk, folder_name
from trainyard.store.manifest import (
    Content,
    CorruptCheckpoint,
    FileRecord,
    Manifest,
    UnknownFormat,
)

_CLEAN_UP_S: Final = 10.0
"""Time to remove a failed save's files; the next attempt's sweep removes the rest."""
_TURNS: Final = 5


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
        """Publish by one conditional write, see s3_manifests. Raises ObjectError or StaleAttempt."""
        self._check_files(manifest)
        content = manifest.to_json().encode()
        name = s3_manifests.manifest_name(self._step)
        for _ in range(_TURNS):
            entry = s3_manifests.read_entry(self._objects, self._step)
            if entry.content == s3_manifests.closing_mark(self._gave_up):
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
            entry = s3_manifests.close_step(objects, self._step, why=self._gave_up)
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
