"""Download an S3 source first: both passes over the text then read the local disk."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Final

from training.objects import BadLocation, ListedObject, ObjectError, Objects
from training.prepare.dataset import DatasetError
from training.prepare.scan import ProgressCallback

SCHEME: Final = "s3://"


@contextmanager
def local_folder(
    source: str, scratch: Path, suffixes: tuple[str, ...], progress: ProgressCallback
) -> Iterator[str]:
    """Yield `source`, or for S3 a temporary folder below `scratch` with its objects.

    Raises DatasetError for an invalid or empty location and for too little disk space.
    """
    if not source.startswith(SCHEME):
        yield source
        return
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetched-", dir=scratch) as folder:
        try:
            _fetch(Objects.at(_folder_url(source)), source, Path(folder), suffixes, progress)
        except (BadLocation, ObjectError) as error:
            raise DatasetError(f"--source: {error}") from None
        yield folder


def _folder_url(source: str) -> str:
    return source if source.endswith("/") else f"{source}/"


def _fetch(
    objects: Objects,
    source: str,
    folder: Path,
    suffixes: tuple[str, ...],
    progress: ProgressCallback,
) -> None:
    found = [o for o in objects.list() if o.bytes and _wanted(o, suffixes)]
    if not found:
        raise DatasetError(f"--source: {source}: no objects found; check the prefix and --suffix")
    needed, free = sum(o.bytes for o in found), shutil.disk_usage(folder).free
    if needed > free:
        raise DatasetError(
            f"--source: {source}: {needed / 1e9:.1f} GB to fetch, {free / 1e9:.1f} GB free at "
            f"{folder.parent}; free some space"
        )
    done = 0
    for listed in found:
        file = folder / listed.name
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("wb") as stream:
            for chunk in objects.chunks(listed.name, count=listed.bytes):
                stream.write(chunk)
                done += len(chunk)
                progress("fetching", done)


def _wanted(listed: ListedObject, suffixes: tuple[str, ...]) -> bool:
    path = PurePosixPath(listed.name)
    inside = not path.is_absolute() and ".." not in path.parts
    return inside and not listed.name.endswith("/") and (not suffixes or path.suffix in suffixes)
