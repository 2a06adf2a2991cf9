"""Fetch a model's files into a folder that appears when all of them are verified.

    FOLDER/.fetched.json         source, size and SHA-256 of each file; the files of a model are not hidden
    .NAME.fetching/files/FILE    verified
    .NAME.fetching/parts/FILE    of a call that was killed: continued at its last byte

A folder that exists is never changed or removed: it is complete, or the caller learns what is wrong with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from trainer.prepare.progress import ProgressCallback
from trainer.weights.checksums import RunningChecksum
from trainer.weights.files import (
    CONFIG_FILE,
    INDEX_FILE,
    Place,
    RemoteFile,
    TransientError,
    WeightsError,
    is_weights,
)
from trainyard.disk import fsync_folder, write_durably

MANIFEST_FILE: Final = ".fetched.json"
_BLOCK: Final = 8 * 1024 * 1024
_CORRUPT_TRIES: Final = 2
PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Pauses between tries without a new byte; any progress begins them again."""


@dataclass(frozen=True, kw_only=True)
class Fetch:
    """One download."""

    place: Place
    source: str
    """The reference, for the manifest and messages."""
    folder: Path
    progress: ProgressCallback
    pause: Callable[[float], None] = time.sleep

    def run(self) -> bool:
        """Fetch what is missing; return False if the folder was complete.

        Raises WeightsError, and TransientError when all tries have failed.
        """
        if self._is_complete():
            return False
        staging = self.folder.with_name(f".{self.folder.name}.fetching")
        with _locked(staging):
            if self._is_complete():  # by the process that held the lock
                return False
            self._fill(staging)
            (staging / "files").rename(self.folder)
            fsync_folder(self.folder.parent)
        shutil.rmtree(staging, ignore_errors=True)
        return True

    def _is_complete(self) -> bool:
        """Return False if there is no folder. Raises WeightsError for one with anything else in it."""
        try:
            found = json.loads((self.folder / MANIFEST_FILE).read_text())
            source = found["source"]
            sizes = {str(name): one["bytes"] for name, one in found["files"].items()}
        except FileNotFoundError:
            if not self.folder.exists():
                return False
            raise self._occupied("was not written by this command") from None
        except (ValueError, KeyError, TypeError, AttributeError, NotADirectoryError):
            raise self._occupied(f"its {MANIFEST_FILE} is not readable") from None
        if source != self.source:
            raise self._occupied(f"holds {source!r}")
        for name, size in sizes.items():
            if _size(self.folder / name) != size:
                raise self._occupied(f"{name} is missing or not of {size} bytes")
        return True

    def _occupied(self, problem: str) -> WeightsError:
        return WeightsError(
            f"{self.folder}: exists, but {problem}; must be absent or hold {self.source}; remove it"
        )

    def _fill(self, staging: Path) -> None:
        files, parts = staging / "files", staging / "parts"
        files.mkdir(exist_ok=True)
        parts.mkdir(exist_ok=True)
        wanted = self._patiently(self._wanted)
        total = sum(file.bytes for file in wanted)
        there = sum(_size(files / f.name) or _size(_part(parts, f)) for f in wanted)
        _check_room(staging, self.source, total - there)
        done = 0
        digests: dict[str, str] = {}
        for file in wanted:
            digests[file.name] = self._fetch(file, files, parts, done, total)
            done += file.bytes
        for leftover in {one.name for one in files.iterdir()} - digests.keys():
            (files / leftover).unlink()
        self._check_index(files)
        manifest = {
            "source": self.source,
            "files": {f.name: {"bytes": f.bytes, "sha256": digests[f.name]} for f in wanted},
        }
        write_durably(files / MANIFEST_FILE, (json.dumps(manifest, indent=1) + "\n").encode())
        fsync_folder(files)

    def _wanted(self) -> list[RemoteFile]:
        found = sorted(self.place.files(), key=lambda file: file.name)
        names = {file.name for file in found}
        if CONFIG_FILE not in names:
            raise WeightsError(
                f"{self.source}: has no {CONFIG_FILE}; must be a model of transformers"
            )
        if not any(is_weights(name) for name in names):
            raise WeightsError(
                f"{self.source}: has no model.safetensors, nor parts of one; pickled weights are not read"
            )
        return found

    def _check_index(self, files: Path) -> None:
        """Require the shards that the index of the weights names."""
        if not (files / INDEX_FILE).exists():
            return
        try:
            named = set(json.loads((files / INDEX_FILE).read_text())["weight_map"].values())
        except (ValueError, KeyError, TypeError, AttributeError):
            raise WeightsError(f"{self.source}: {INDEX_FILE} is not an index of weights") from None
        if missing := sorted(str(n) for n in named if not (files / str(n)).is_file()):
            raise WeightsError(
                f"{self.source}: {INDEX_FILE} names {missing[0]}, which is not there"
            )

    def _fetch(self, file: RemoteFile, files: Path, parts: Path, before: int, total: int) -> str:
        """Fetch one file; return its SHA-256."""
        target, part = files / file.name, _part(parts, file)
        if target.exists():
            if digest := _verified(target, file):
                return digest
            target.unlink()
        for _ in range(_CORRUPT_TRIES):
            self._download(file, part, before, total)
            if digest := _verified(part, file):
                _fsync(part)
                part.rename(target)
                return digest
            part.unlink()
        raise WeightsError(
            f"{self.source}: {file.name}: its content differs from the checksum that the source states, "
            f"in {_CORRUPT_TRIES} downloads"
        )

    def _download(self, file: RemoteFile, part: Path, before: int, total: int) -> None:
        def attempt() -> None:
            if _size(part) > file.bytes:
                part.unlink()
            if _size(part) < file.bytes or not part.exists():
                part.touch()
                self.place.append(
                    file, part, lambda at: self.progress("fetching", before + at, total)
                )
            if (at := _size(part)) != file.bytes:
                raise TransientError(f"{self.source}: {file.name}: got {at} of {file.bytes} bytes")

        self._patiently(attempt, lambda: _size(part))

    def _patiently(self, action: Callable[[], Any], reached: Callable[[], int] = lambda: 0) -> Any:
        """Call until it succeeds, with growing pauses while there is no progress."""
        tries, most = 0, reached()
        while True:
            try:
                return action()
            except TransientError:
                now = reached()
                tries, most = (0, now) if now > most else (tries + 1, most)
                if tries >= len(PAUSES_S):
                    raise
                self.pause(PAUSES_S[tries])


@contextmanager
def _locked(staging: Path) -> Iterator[None]:
    """Hold the lock of a staging folder, which is created."""
    staging.mkdir(parents=True, exist_ok=True)
    with (staging / "lock").open("w") as lock:
        with contextlib.suppress(OSError):  # some file systems have no locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        staging.mkdir(exist_ok=True)  # the process that held the lock removes it
        yield


def _part(parts: Path, file: RemoteFile) -> Path:
    """Where an incomplete file lies: a changed object begins another one."""
    return parts / f"{file.name}.{hashlib.sha256(file.tag.encode()).hexdigest()[:16]}"


def _fsync(file: Path) -> None:
    with file.open("rb+") as stream:
        os.fsync(stream.fileno())


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _verified(path: Path, file: RemoteFile) -> str:
    """Return the SHA-256 of a file; empty if it is not what the source states."""
    known, own = [RunningChecksum(one, file.bytes) for one in file.checksums], hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            own.update(block)
            for running in known:
                running.update(block)
    matches = _size(path) == file.bytes and all(running.matches() for running in known)
    return own.hexdigest() if matches else ""


def _check_room(folder: Path, source: str, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise WeightsError(
            f"{source}: {needed / 1e9:.1f} GB to fetch, {free / 1e9:.1f} GB free at {folder.parent}; "
            "free some space"
        )
