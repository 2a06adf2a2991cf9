"""Checkpoints in a folder of a POSIX file system, local or shared by all ranks.

Order of a write: every file, fsynced by the rank that wrote it; then the leader: the manifest,
fsynced; the hidden folder, fsynced; the fence; one rename; the parent, fsynced. A crash at any
point leaves the old state or the new one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from trainyard import shared_files
from trainyard.disk import fsync_folder
from trainyard.store.durable import write_file
from trainyard.store.interface import CheckpointStore, Chunk, Source, folder_name, parse_step
from trainyard.store.manifest import (
    MANIFEST_FILE,
    CorruptCheckpoint,
    FileRecord,
    Manifest,
)

WRITING = ".writing-"
"""Prefix of folders of unfinished writes."""
_UNFINISHED = re.compile(rf"{re.escape(WRITING)}.+-attempt-([0-9]+)")
_CORRUPT = ".corrupt-"
_DELETING = ".deleting-"
_KNOWN_GOOD = "last-known-good.json"


def _no_boundary(_: str) -> None:
    return None


class PosixStore(CheckpointStore):
    """A CheckpointStore in one folder, created on the first write."""

    def __init__(self, root: Path, at_boundary: Callable[[str], None] = _no_boundary) -> None:
        """`at_boundary` is called before each write, fsync and rename: tests inject faults there."""
        self.root = root
        self._at = at_boundary

    @property
    def place(self) -> str:
        return str(self.root)

    def steps(self) -> list[int]:
        shared_files.refresh(self.root)
        try:
            names = os.listdir(self.root)
        except FileNotFoundError:
            return []
        found = [(parse_step(name), name) for name in names]
        return sorted(
            step
            for step, name in found
            if step is not None and (self.root / name / MANIFEST_FILE).exists()
        )

    def manifest(self, step: int) -> Manifest:
        """Return the manifest of this step. Raises CorruptCheckpoint."""
        file = self._folder(step) / MANIFEST_FILE
        try:
            manifest = Manifest.from_json(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise CorruptCheckpoint(f"{MANIFEST_FILE}: {error}") from None
        if manifest.step != step:
            raise CorruptCheckpoint(f"{MANIFEST_FILE}: is of step {manifest.step}, not {step}")
        return manifest

    def open(self, step: int, name: str) -> Source:
        """Open a file unbuffered. Raises CorruptCheckpoint."""
        try:
            return (self._folder(step) / name).open("rb", buffering=0)
        except OSError as error:
            raise CorruptCheckpoint(f"{name}: {error.strerror}") from None

    def begin(self, step: int, attempt: int) -> PosixUpload:
        """Create the hidden folder that all ranks of this attempt share. Raises OSError."""
        name = f"{WRITING}{folder_name(step)}-attempt-{attempt:08d}"
        (self.root / name).mkdir(parents=True, exist_ok=True)
        return self.adopt(self.root / name)

    def adopt(self, folder: Path) -> PosixUpload:
        """Return an upload of the files in a hidden folder of this store."""
        return PosixUpload(self, folder, self._at)

    def delete(self, step: int) -> None:
        """Hide the checkpoint by a rename, then remove its files."""
        self._remove(self._hide(step, _DELETING))

    def set_aside(self, step: int) -> None:
        """Hide a corrupt checkpoint; its files stay until the next `sweep`."""
        self._hide(step, _CORRUPT)

    def sweep(self, before: int | None = None) -> None:
        """Remove hidden folders: unfinished writes, deletions and corrupt checkpoints.

        `before`: unfinished writes of attempts before this one only.
        """
        if self.root.is_dir():
            for entry in self.root.iterdir():
                unfinished = _UNFINISHED.fullmatch(entry.name)
                if unfinished and before is not None and int(unfinished[1]) >= before:
                    continue
                if entry.name.startswith((WRITING, _CORRUPT, _DELETING)):
                    self._remove(entry)

    def mark_known_good(self, step: int) -> None:
        """Record `step` next to the checkpoints; a reader sees the old mark or this one."""
        fresh = self.root / f".{_KNOWN_GOOD}-{os.getpid()}"
        fresh.write_text(json.dumps({"step": step}) + "\n", encoding="utf-8")
        fresh.replace(self.root / _KNOWN_GOOD)

    def _known_good(self) -> bytes:
        return (self.root / _KNOWN_GOOD).read_bytes()

    def _hide(self, step: int, prefix: str) -> Path:
        folder = self._folder(step)
        hidden = self.root / f"{prefix}{folder.name}-{uuid.uuid4().hex[:8]}"
        with contextlib.suppress(FileNotFoundError):
            self._at(f"rename {hidden.name}")
            folder.rename(hidden)
        return hidden

    def _remove(self, folder: Path) -> None:
        self._at(f"remove {folder.name}")
        shutil.rmtree(folder, ignore_errors=True)

    def _folder(self, step: int) -> Path:
        return self.root / folder_name(step)


class PosixUpload:
    """An Upload into a hidden folder that the leader renames."""

    def __init__(self, store: PosixStore, folder: Path, at_boundary: Callable[[str], None]) -> None:
        self._store = store
        self._folder = folder
        self._at = at_boundary

    def put(self, name: str, chunks: Sequence[Chunk]) -> FileRecord:
        """Write one file, fsynced. Raises OSError."""
        return write_file(self._folder / name, chunks, self._at)

    def commit(self, manifest: Manifest, fence: Callable[[], None]) -> Manifest:
        """Publish as the module's docstring describes. Raises OSError, or what `fence` raises."""
        for name, record in manifest.files.items():
            if (self._folder / name).stat().st_size != record.bytes:
                raise OSError(f"{name}: size differs from what was written")
        self.put(MANIFEST_FILE, [manifest.to_json().encode()])
        self._at("fsync folder")
        fsync_folder(self._folder)
        fence()
        final = self._store.root / folder_name(manifest.step)
        if final.exists():
            if not self._store.verify(manifest.step):
                self.abort()
                return self._store.manifest(manifest.step)
            self._store.set_aside(manifest.step)
        self._at(f"rename {final.name}")
        self._folder.rename(final)
        self._at("fsync checkpoints")
        fsync_folder(self._store.root)
        return manifest

    def abort(self) -> None:
        """Remove the folder; no effect after a commit."""
        shutil.rmtree(self._folder, ignore_errors=True)
