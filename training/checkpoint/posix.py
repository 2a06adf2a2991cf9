"""Checkpoints in a folder of a POSIX file system, local or shared.

Order of a write: every shard, fsynced; the manifest, fsynced; the hidden folder, fsynced; the
fence; one rename; the parent, fsynced. A crash at any point leaves the old state or the new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from training.checkpoint.manifest import MANIFEST_FILE, CorruptCheckpoint, FileRecord, Manifest
from training.checkpoint.store import Chunk, Payload, folder_name, step_of

_WRITING = ".writing-"
_CORRUPT = ".corrupt-"
_DELETING = ".deleting-"
_CHUNK_BYTES = 8 * 1024 * 1024
"""Hashed and written at a time: small enough to stay in cache between the two."""


def _no_boundary(_: str) -> None:
    return None


class PosixStore:
    """A CheckpointStore in one folder, which is made on the first write."""

    def __init__(self, root: Path, at_boundary: Callable[[str], None] = _no_boundary) -> None:
        """`at_boundary` is told before each write, fsync and rename: where tests inject faults."""
        self._root = root
        self._at = at_boundary

    def steps(self) -> list[int]:
        """Steps whose folder has a manifest, ascending."""
        try:
            names = os.listdir(self._root)
        except FileNotFoundError:
            return []
        found = [(step_of(name), name) for name in names]
        return sorted(
            step
            for step, name in found
            if step is not None and (self._root / name / MANIFEST_FILE).exists()
        )

    def manifest(self, step: int) -> Manifest:
        """The manifest, if it belongs to this step. Raises CorruptCheckpoint."""
        file = self._folder(step) / MANIFEST_FILE
        try:
            manifest = Manifest.from_json(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise CorruptCheckpoint(f"{MANIFEST_FILE}: {error}") from None
        if manifest.step != step:
            raise CorruptCheckpoint(f"{MANIFEST_FILE}: is of step {manifest.step}, not {step}")
        return manifest

    def read(self, step: int, name: str) -> bytes:
        """A shard's bytes after comparing them with the manifest. Raises CorruptCheckpoint."""
        record = self.manifest(step).files.get(name)
        if record is None:
            raise CorruptCheckpoint(f"{name}: not in the manifest")
        try:
            content = (self._folder(step) / name).read_bytes()
        except OSError as error:
            raise CorruptCheckpoint(f"{name}: {error.strerror}") from None
        mistake = _mistake(name, content, record)
        if mistake:
            raise CorruptCheckpoint(mistake)
        return content

    def verify(self, step: int) -> list[str]:
        """One line per shard that is missing, truncated or altered, or for a bad manifest."""
        try:
            names = list(self.manifest(step).files)
        except CorruptCheckpoint as error:
            return [str(error)]
        mistakes = []
        for name in names:
            try:
                self.read(step, name)
            except CorruptCheckpoint as error:
                mistakes.append(str(error))
        return mistakes

    def write(
        self, manifest: Manifest, payloads: Sequence[Payload], fence: Callable[[], None]
    ) -> Manifest:
        """Publish a checkpoint as the module says. A whole one of the same step is kept instead.

        Raises OSError, or what `fence` raises; then nothing has become visible.
        """
        self._root.mkdir(parents=True, exist_ok=True)
        staging = self._root / f"{_WRITING}{folder_name(manifest.step)}-{uuid.uuid4().hex[:8]}"
        staging.mkdir()
        try:
            files = {
                item.name: self._write_file(staging, item.name, item.chunks) for item in payloads
            }
            manifest = manifest.with_files(files)
            self._write_file(staging, MANIFEST_FILE, [manifest.to_json().encode()])
            self._fsync_folder(staging)
            fence()
            return self._publish(staging, manifest)
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def delete(self, step: int) -> None:
        """Hide it by a rename, then remove the files."""
        self._remove(self._hide(step, _DELETING))

    def set_aside(self, step: int) -> None:
        """Hide a corrupt checkpoint; its bytes stay until the next `sweep`."""
        self._hide(step, _CORRUPT)

    def sweep(self) -> None:
        """Remove hidden folders: unfinished writes, deletions and corrupt checkpoints."""
        if self._root.is_dir():
            for entry in self._root.iterdir():
                if entry.name.startswith((_WRITING, _CORRUPT, _DELETING)):
                    self._remove(entry)

    def _publish(self, staging: Path, manifest: Manifest) -> Manifest:
        final = self._folder(manifest.step)
        if final.exists():
            if not self.verify(manifest.step):
                return self.manifest(manifest.step)
            self.set_aside(manifest.step)
        self._at(f"rename {final.name}")
        staging.rename(final)
        self._fsync_folder(self._root)
        return manifest

    def _write_file(self, folder: Path, name: str, chunks: Sequence[Chunk]) -> FileRecord:
        digest, size = hashlib.sha256(), 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        descriptor = os.open(folder / name, flags, 0o644)
        try:
            for chunk in chunks:
                whole = memoryview(chunk).cast("B")
                for start in range(0, len(whole), _CHUNK_BYTES):
                    piece = whole[start : start + _CHUNK_BYTES]
                    digest.update(piece)
                    self._at(f"write {name}")
                    _write_all(descriptor, piece)
                    size += len(piece)
            self._at(f"fsync {name}")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return FileRecord(bytes=size, sha256=digest.hexdigest())

    def _fsync_folder(self, folder: Path) -> None:
        self._at(f"fsync {'checkpoints' if folder == self._root else 'folder'}")
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _hide(self, step: int, prefix: str) -> Path:
        folder = self._folder(step)
        hidden = self._root / f"{prefix}{folder.name}-{uuid.uuid4().hex[:8]}"
        with contextlib.suppress(FileNotFoundError):
            self._at(f"rename {hidden.name}")
            folder.rename(hidden)
        return hidden

    def _remove(self, folder: Path) -> None:
        self._at(f"remove {folder.name}")
        shutil.rmtree(folder, ignore_errors=True)

    def _folder(self, step: int) -> Path:
        return self._root / folder_name(step)


def _write_all(descriptor: int, piece: memoryview) -> None:
    while len(piece):
        piece = piece[os.write(descriptor, piece) :]


def _mistake(name: str, content: bytes, record: FileRecord) -> str | None:
    if len(content) != record.bytes:
        return f"{name}: got {len(content)} bytes; the manifest says {record.bytes}"
    if hashlib.sha256(content).hexdigest() != record.sha256:
        return f"{name}: content differs from the manifest's SHA-256"
    return None
