"""Bring the copy of a run up to date: `STORE/RUN/...`, as in the run directory.

A checkpoint's manifest is copied after its files, so that the copy of a checkpoint is complete or not listed;
each file is compared with the manifest's hash on the way. Copies of checkpoints that the run has deleted are
deleted once a newer one is there. Nothing else is ever deleted: not when a run directory, or all its checkpoints,
are gone.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trainyard.contract import CHECKPOINTS_DIR
from trainyard.objects import ListedObject, Objects
from trainyard.objects.upload import Observe, Uploader
from trainyard.store.interface import folder_name, parse_step
from trainyard.store.manifest import (
    MANIFEST_FILE,
    Content,
    CorruptCheckpoint,
    FileRecord,
    Manifest,
    UnknownFormat,
)
from trainyard.store.posix import PosixStore


@dataclass
class Copied:
    files: int = 0
    bytes: int = 0
    deleted: int = 0
    """Checkpoints."""
    corrupt: str = ""
    """Why a checkpoint was not copied; empty: all were."""


def copy_run(run_dir: Path, to: Objects, uploader: Uploader) -> Copied:
    """Copy what is new or has changed. Raises ObjectError and OSError."""
    return _Copy(run_dir, to, uploader).run()


class _Copy:
    def __init__(self, run_dir: Path, to: Objects, uploader: Uploader) -> None:
        self._run_dir = run_dir
        self._to = to
        self._uploader = uploader
        self._now = time.time()
        self._there = {entry.name: entry for entry in to.list()}
        self._done = Copied()

    def run(self) -> Copied:
        for path in results(self._run_dir):
            self._bring(path)
        copied = [step for step in self._steps() if self._bring_checkpoint(step)]
        for path in other_checkpoint_files(self._run_dir):
            self._bring(path)
        self._delete_older(copied)
        return self._done

    def _steps(self) -> list[int]:
        return PosixStore(self._run_dir / CHECKPOINTS_DIR).steps()

    def _bring(self, path: Path, content: Content | None = None) -> bool:
        """Copy a file unless its copy is up to date; return whether it was copied, which `content` observes."""
        name = path.relative_to(self._run_dir).as_posix()
        try:
            state = path.stat()
            if _is_current(self._there.get(name), state.st_size, self._now - state.st_mtime):
                return False
            observe = content.update if content else None
            size = send(path, self._to, name, self._uploader, observe)
        except FileNotFoundError:
            return False  # the run has deleted it since it was listed
        self._done.files += 1
        self._done.bytes += size
        return True

    def _bring_checkpoint(self, step: int) -> bool:
        """Copy a checkpoint; return whether its copy is complete."""
        folder = self._run_dir / CHECKPOINTS_DIR / folder_name(step)
        last = folder / MANIFEST_FILE
        try:
            text = last.read_bytes()
            age_s = self._now - last.stat().st_mtime
            name = last.relative_to(self._run_dir).as_posix()
            if _is_current(self._there.get(name), len(text), age_s):
                return True
            records = Manifest.from_json(text.decode()).files
            if name in self._there:
                self._to.delete([name])
            for own, record in records.items():
                self._bring_verified(folder / own, own, record)
            if not all((folder / own).is_file() for own in records):
                return False  # deleted meanwhile
        except (FileNotFoundError, UnicodeDecodeError):
            return False
        except CorruptCheckpoint as error:
            self._done.corrupt = f"{folder_name(step)} is corrupt: {error}"
            return False
        except UnknownFormat as error:
            self._done.corrupt = f"{folder_name(step)}: {error}"
            return False
        self._to.put(name, text)
        self._done.files += 1
        self._done.bytes += len(text)
        return True

    def _bring_verified(self, path: Path, name: str, record: FileRecord) -> None:
        """Copy a checkpoint's file. Raises CorruptCheckpoint, and then there is no copy."""
        content = Content(record.algorithm)
        if self._bring(path, content):
            try:
                record.compare(name, content.record())
            except CorruptCheckpoint:
                self._to.delete([path.relative_to(self._run_dir).as_posix()])
                raise

    def _delete_older(self, copied: Sequence[int]) -> None:
        """Delete copies of checkpoints that the run has deleted and that are older than its newest one."""
        if not copied:
            return
        kept = set(self._steps())
        for step, names in _steps_of(self._there).items():
            if step not in kept and step < max(copied):
                last = f"{CHECKPOINTS_DIR}/{folder_name(step)}/{MANIFEST_FILE}"
                self._to.delete([last])
                self._to.delete(name for name in names if name != last)
                self._done.deleted += 1


def _is_current(found: ListedObject | None, size: int, age_s: float) -> bool:
    """Return whether an object is as large as its file and was written after it."""
    return found is not None and found.bytes == size and found.age_s <= age_s


def _steps_of(there: Mapping[str, ListedObject]) -> dict[int, list[str]]:
    steps: dict[int, list[str]] = {}
    for name in there:
        words = name.split("/")
        if words[0] == CHECKPOINTS_DIR and len(words) > 2:
            step = parse_step(words[1])
            if step is not None:
                steps.setdefault(step, []).append(name)
    return steps


_READ_MAX: Final = 64 * 1024 * 1024
"""Larger files are mapped, not read into memory."""


def results(run_dir: Path) -> Iterator[Path]:
    """Return the files of a run besides its checkpoints, in order: none that is hidden, unfinished or a link."""
    return (
        path for path in files(run_dir) if path.relative_to(run_dir).parts[0] != CHECKPOINTS_DIR
    )


def other_checkpoint_files(run_dir: Path) -> Iterator[Path]:
    """Return what is among the checkpoints and is none: files of programs that save without the library."""
    root = run_dir / CHECKPOINTS_DIR
    return (path for path in files(root) if parse_step(path.relative_to(root).parts[0]) is None)


def files(folder: Path) -> Iterator[Path]:
    """Return the files below a folder in order: none that is hidden, below a hidden folder, or a link."""
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(place, name) for name in names if not name.startswith(".")]
    return (path for path in sorted(found) if path.is_file() and not path.is_symlink())


def send(
    path: Path, to: Objects, name: str, uploader: Uploader, observe: Observe | None = None
) -> int:
    """Copy a file to the object `name`; return its size in bytes. Raises ObjectError and OSError.

    `observe` receives the content in order.
    """
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size <= _READ_MAX:
            return uploader.write(to, name, [file.read()], observe)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            view = memoryview(mapped)
            try:
                return uploader.write(to, name, [view], observe)
            finally:
                view.release()
