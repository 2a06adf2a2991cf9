"""Copy dataset versions to a local disk, once per node, before the first step.

    STAGING/VERSION/                complete: renamed after its last file was verified and fsynced
    STAGING/.VERSION.copying/files  what is copied so far; the other ranks of the node wait for the folder's lock

Files are hashed while they are copied. What a crash has left is verified and kept. Older versions are not removed.
"""

from __future__ import annotations

import functools
import hashlib
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from trainer.data.dataset import open_version
from trainer.data.windows import DatasetVersion
from trainer.prepare.dataset import (
    INDEX_FILE,
    LATEST_FILE,
    DataFile,
    DatasetError,
    file_damage,
    parse_index,
    parse_latest,
)
from trainer.prepare.staging import missing_space, staging_folder, write_chunks
from trainyard.disk import fsync_folder, write_durably
from trainyard.objects import BadLocation, ObjectError, ObjectMissing, Objects

CHUNK_BYTES: Final = 8 * 1024 * 1024


def latest_version(source: str) -> str:
    """Return the version in the file `latest` of a dataset: a folder or s3://. Raises DatasetError."""
    return parse_latest(_text(source, LATEST_FILE), f"{source}/{LATEST_FILE}")


def cache_version(source: str, version: str, staging: Path, *, full_check: bool) -> DatasetVersion:
    """Open a version from the local disk, copying it there first if needed or if it is damaged.

    Raises DatasetError for too little disk space and for missing or corrupt files.
    """
    folder = staging / version
    try:
        _copy_if(lambda: not (folder / INDEX_FILE).exists(), source, version, staging)
        try:
            return open_version(folder, full_check=full_check)
        except (
            DatasetError
        ):  # another rank may have mended it by the time that this one has the lock
            _copy_if(lambda: _is_damaged(folder), source, version, staging)
            return open_version(folder, full_check=full_check)
    except OSError as error:
        raise DatasetError(f"data.staging: {staging}: {error.strerror or error}") from None


def _copy_if(needed: Callable[[], bool], source: str, version: str, staging: Path) -> None:
    if not needed():
        return
    copying = staging / f".{version}.copying"
    with staging_folder(copying, BaseException):
        if needed():
            shutil.rmtree(staging / version, ignore_errors=True)
            _copy(source, version, staging, copying / "files")


def _is_damaged(folder: Path) -> bool:
    try:
        open_version(folder, full_check=True)
    except DatasetError:
        return True
    return False


def _copy(source: str, version: str, staging: Path, files: Path) -> None:
    name = f"{version}/{INDEX_FILE}"
    text = _text(source, name)
    index = parse_index(text, version, f"{source}/{name}")
    files.mkdir(exist_ok=True)
    missing = [file for file in index.files() if file_damage(files / file.name, file, hashes=True)]
    if lacking := missing_space(staging, sum(file.bytes or 0 for file in missing)):
        raise DatasetError(
            f"data.staging: {staging}: {lacking}; remove other versions or choose a larger disk"
        )
    for file in missing:
        _copy_file(source, version, file, files / file.name)
    write_durably(files / INDEX_FILE, text.encode())
    fsync_folder(files)
    files.rename(staging / version)
    fsync_folder(staging)


def _copy_file(source: str, version: str, wanted: DataFile, file: Path) -> None:
    """Copy and hash in one pass. Raises DatasetError and removes a file that does not match."""
    name, digest = f"{version}/{wanted.name}", hashlib.sha256()
    for chunk in write_chunks(_chunks(source, name), file):
        digest.update(chunk)
    if digest.hexdigest() != wanted.sha256:
        file.unlink()
        raise DatasetError(
            f"{source}/{name}: corrupt (SHA-256 differs from index.json); prepare the dataset again"
        )


def _text(source: str, name: str) -> str:
    return b"".join(_chunks(source, name)).decode("utf-8", "replace")


def _chunks(source: str, name: str) -> Iterator[bytes]:
    """Yield the content of a file of a dataset. Raises DatasetError."""
    where = f"{source}/{name}"
    try:
        if source.startswith("s3://"):
            yield from _bucket(source).chunks(name)
            return
        with open(where, "rb") as stream:
            yield from iter(partial(stream.read, CHUNK_BYTES), b"")
    except BadLocation as error:
        raise DatasetError(f"data.path: {error}") from None
    except ObjectMissing:
        raise DatasetError(f"{where}: missing; prepare the dataset again") from None
    except ObjectError as error:
        raise DatasetError(str(error)) from None
    except OSError as error:
        raise DatasetError(f"{where}: {error.strerror or error}") from None


@functools.cache
def _bucket(source: str) -> Objects:
    return Objects.at(f"{source.rstrip('/')}/")
