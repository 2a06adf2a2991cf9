"""Copy dataset versions to a local disk, once per node, before the first step.

    STAGING/VERSION/...       complete: renamed after its last file was verified and fsynced
    STAGING/.VERSION.lock     held by the rank that copies; other ranks of the node wait
    STAGING/.VERSION.copying/ left by a crash: its files are verified again and reused

Files are hashed while they are copied. Older versions are not removed.
"""

from __future__ import annotations

import abc
import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from trainer.data.dataset import open_version
from trainer.data.windows import DatasetVersion
from trainer.prepare.dataset import (
    INDEX_FILE,
    LATEST_FILE,
    DataFile,
    DatasetError,
    file_sha256,
    parse_index,
    parse_latest,
)
from trainyard.disk import fsync_folder, write_durably

CHUNK_BYTES: Final = 8 * 1024 * 1024


class DatasetSource(abc.ABC):
    """Storage of a prepared dataset. Methods raise DatasetError; names are relative to the dataset."""

    @abc.abstractmethod
    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield a file's content in chunks."""

    @abc.abstractmethod
    def where(self, name: str) -> str:
        """Return the file's path or URL for messages."""

    def text(self, name: str) -> str:
        """Return a small file's content."""
        return b"".join(self.chunks(name)).decode("utf-8", "replace")


class FolderSource(DatasetSource):
    """A dataset on a mounted file system."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def chunks(self, name: str) -> Iterator[bytes]:
        """See DatasetSource."""
        try:
            with (self._path / name).open("rb") as stream:
                while chunk := stream.read(CHUNK_BYTES):
                    yield chunk
        except OSError as error:
            raise DatasetError(f"{self.where(name)}: {_reason(error)}") from None

    def where(self, name: str) -> str:
        """See DatasetSource."""
        return str(self._path / name)


class BucketSource(DatasetSource):
    """A copy of a dataset below s3://BUCKET/PREFIX."""

    def __init__(self, url: str) -> None:
        """Parse the URL; connects lazily. Raises DatasetError for an invalid one."""
        from trainyard.objects import BadLocation, Objects

        self._url = url.rstrip("/")
        try:
            self._objects = Objects.at(f"{self._url}/")
        except BadLocation as error:
            raise DatasetError(f"data.path: {error}") from None

    def chunks(self, name: str) -> Iterator[bytes]:
        """See DatasetSource."""
        from trainyard.objects import ObjectError, ObjectMissing

        try:
            yield from self._objects.chunks(name)
        except ObjectMissing:
            raise DatasetError(f"{self.where(name)}: missing; prepare the dataset again") from None
        except ObjectError as error:
            raise DatasetError(str(error)) from None

    def where(self, name: str) -> str:
        """See DatasetSource."""
        return f"{self._url}/{name}"


def open_dataset_source(path: str) -> DatasetSource:
    """Return the storage that `data.path` names. Raises DatasetError."""
    return BucketSource(path) if path.startswith("s3://") else FolderSource(Path(path))


def latest_version(place: DatasetSource) -> str:
    """Return the version in the dataset's `latest` file. Raises DatasetError."""
    return parse_latest(place.text(LATEST_FILE), place.where(LATEST_FILE))


def cache_version(
    place: DatasetSource, version: str, staging: Path, *, full_check: bool
) -> DatasetVersion:
    """Open a version from the local disk, copying it there first if needed.

    Raises DatasetError for too little disk space and for missing or corrupt files.
    """
    folder = staging / version
    try:
        staging.mkdir(parents=True, exist_ok=True)
        with _locked(staging, version):
            if not (folder / INDEX_FILE).exists():
                _copy(place, version, staging)
        try:
            return open_version(folder, full_check=full_check)
        except DatasetError:
            with _locked(staging, version):
                _copy_again_if_bad(place, version, staging)
            return open_version(folder, full_check=full_check)
    except OSError as error:
        raise DatasetError(f"data.staging: {staging}: {_reason(error)}") from None


@contextlib.contextmanager
def _locked(staging: Path, version: str) -> Iterator[None]:
    with (staging / f".{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _copy_again_if_bad(place: DatasetSource, version: str, staging: Path) -> None:
    """Copy a corrupt version again, unless another rank has done so meanwhile."""
    folder = staging / version
    try:
        open_version(folder, full_check=True)
    except DatasetError:
        shutil.rmtree(folder)
        _copy(place, version, staging)


def _copy(place: DatasetSource, version: str, staging: Path) -> None:
    text = place.text(f"{version}/{INDEX_FILE}")
    index = parse_index(text, version, place.where(f"{version}/{INDEX_FILE}"))
    copying = staging / f".{version}.copying"
    copying.mkdir(exist_ok=True)
    missing = [file for file in index.files() if not _is_whole(copying / file.name, file)]
    _check_room(missing, staging)
    for file in missing:
        _copy_file(place, version, file, copying / file.name)
    write_durably(copying / INDEX_FILE, text.encode())
    fsync_folder(copying)
    copying.rename(staging / version)
    fsync_folder(staging)


def _check_room(missing: list[DataFile], staging: Path) -> None:
    needed = sum(file.bytes or 0 for file in missing)
    free = shutil.disk_usage(staging).free
    if needed > free:
        raise DatasetError(
            f"data.staging: {staging}: {needed / 1e9:.2f} GB to copy, {free / 1e9:.2f} GB free; "
            "remove other versions or choose a larger disk"
        )


def _copy_file(place: DatasetSource, version: str, wanted: DataFile, file: Path) -> None:
    """Copy and hash in one pass. Raises DatasetError and removes a file that does not match."""
    name = f"{version}/{wanted.name}"
    digest = hashlib.sha256()
    with file.open("wb") as stream:
        for chunk in place.chunks(name):
            stream.write(chunk)
            digest.update(chunk)
        stream.flush()
        os.fsync(stream.fileno())
    if digest.hexdigest() != wanted.sha256:
        with contextlib.suppress(OSError):
            file.unlink()
        raise DatasetError(
            f"{place.where(name)}: corrupt (SHA-256 differs from index.json); prepare the dataset again"
        )


def _is_whole(file: Path, wanted: DataFile) -> bool:
    """Return whether an earlier attempt has copied the whole file."""
    if not file.exists() or wanted.bytes not in (None, file.stat().st_size):
        return False
    return file_sha256(file) == wanted.sha256


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
