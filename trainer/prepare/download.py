"""Download an S3 source first: both passes over the text then read the local disk."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Final

from trainer.prepare.dataset import DatasetError
from trainer.prepare.formats import has_suffix, is_hidden
from trainer.prepare.staging import missing_space, remove_abandoned, staging_folder, write_chunks
from trainer.prepare.state import ProgressCallback
from trainyard.hashing import content_hash
from trainyard.objects import BadLocation, ListedObject, ObjectError, Objects

SCHEME: Final = "s3://"
FETCHED_PREFIX: Final = ".fetched-"
_NO_FILE: Final = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST)
"""Errors of a key that is too long, or begins with another key and a slash."""
_OBJECTS: Final = "objects"


@contextmanager
def local_folder(
    source: str, scratch: Path, suffixes: tuple[str, ...], progress: ProgressCallback
) -> Iterator[str]:
    """Yield `source`, or for S3 a hidden folder below `scratch` with its objects.

    What a killed process has fetched is not fetched again unless an object has changed. The folder is removed at
    the end, but not by an OSError or an interruption. Raises DatasetError for an invalid or empty location and for
    too little disk space.
    """
    if not source.startswith(SCHEME):
        yield source
        return
    try:
        objects = Objects.at(source if source.endswith("/") else f"{source}/")
        found = [one for one in objects.list() if one.bytes and _wanted(one, suffixes)]
        if not found:
            raise DatasetError(
                f"--source: {source}: no objects found; check the prefix and --suffix"
            )
        content = [source, *([one.name, one.etag] for one in found)]
        folder = scratch / f"{FETCHED_PREFIX}{content_hash(content)[:16]}"
        for other in scratch.glob(f"{FETCHED_PREFIX}*"):
            if other != folder:
                remove_abandoned(other)
        with staging_folder(folder, OSError, KeyboardInterrupt):
            _fetch(objects, found, source, folder, progress)
            yield str(folder / _OBJECTS)
    except (BadLocation, ObjectError) as error:
        raise DatasetError(f"--source: {error}") from None


def _fetch(
    objects: Objects,
    found: list[ListedObject],
    source: str,
    folder: Path,
    progress: ProgressCallback,
) -> None:
    total = done = 0
    missing = []
    for one in found:
        total += one.bytes
        if _is_there(folder / _OBJECTS / one.name):
            done += one.bytes
        else:
            missing.append(one)
    if lacking := missing_space(folder, total - done):
        raise DatasetError(f"--source: {source}: {lacking} at {folder.parent}; free some space")
    part = folder / "part"
    for listed in missing:
        for chunk in write_chunks(objects.chunks(listed.name, count=listed.bytes), part):
            done += len(chunk)
            progress("fetching", done, total)
        _place(part, folder / _OBJECTS / listed.name, listed.name)


def _is_there(file: Path) -> bool:
    try:
        return file.is_file()
    except (OSError, ValueError):  # a key that cannot be a file: `_place` says why
        return False


def _place(part: Path, file: Path, name: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.rename(file)
    except (OSError, ValueError) as error:  # ValueError: a zero byte
        if isinstance(error, OSError) and error.errno not in _NO_FILE:
            raise
        reason = getattr(error, "strerror", None) or error
        raise DatasetError(
            f"--source: {name[:200]}: cannot be a file here: {reason}; "
            "rename the object, or leave it out with --suffix"
        ) from None


def _wanted(listed: ListedObject, suffixes: tuple[str, ...]) -> bool:
    path = PurePosixPath(listed.name)
    inside = not path.is_absolute() and ".." not in path.parts
    read = not is_hidden(listed.name) and has_suffix(listed.name, suffixes)
    return inside and read and not listed.name.endswith("/")
