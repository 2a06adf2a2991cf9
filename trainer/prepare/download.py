"""Download an S3 source first: both passes over the text then read the local disk."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Final

from trainer.prepare.dataset import DatasetError
from trainer.prepare.formats import has_suffix, is_hidden
from trainer.prepare.progress import ProgressCallback
from trainer.prepare.staging import missing_space, staging_folder
from trainyard.hashing import content_hash
from trainyard.objects import BadLocation, ListedObject, ObjectError, Objects

SCHEME: Final = "s3://"
FETCHED_PREFIX: Final = ".fetched-"
_NO_FILE: Final = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST)
"""Errors of a key that is too long, or begins with another key and a slash."""
_OBJECTS: Final = "objects"
_JOURNAL: Final = "journal.jsonl"
"""Name and ETag of each object that is complete."""


@contextmanager
def local_folder(
    source: str, scratch: Path, suffixes: tuple[str, ...], progress: ProgressCallback
) -> Iterator[str]:
    """Yield `source`, or for S3 a hidden folder below `scratch` with its objects.

    What a killed process has fetched is not fetched again. The folder is removed at the end, but not by an OSError
    or an interruption. Raises DatasetError for an invalid or empty location and for too little disk space.
    """
    if not source.startswith(SCHEME):
        yield source
        return
    folder = scratch / f"{FETCHED_PREFIX}{content_hash([source, list(suffixes)])[:16]}"
    with staging_folder(folder, OSError, KeyboardInterrupt):
        (folder / _OBJECTS).mkdir(exist_ok=True)
        try:
            objects = Objects.at(source if source.endswith("/") else f"{source}/")
            _fetch(objects, source, folder, suffixes, progress)
        except (BadLocation, ObjectError) as error:
            raise DatasetError(f"--source: {error}") from None
        yield str(folder / _OBJECTS)


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
    whole = _journal(folder)
    missing = [o for o in found if whole.get(o.name) != o.etag]
    needed = sum(o.bytes for o in missing)
    if lacking := missing_space(folder, needed):
        raise DatasetError(f"--source: {source}: {lacking} at {folder.parent}; free some space")
    total = sum(o.bytes for o in found)
    done = total - needed
    with (folder / _JOURNAL).open("a") as journal:
        for listed in missing:
            for count in _fetch_object(objects, listed, folder / _OBJECTS / listed.name):
                done += count
                progress("fetching", done, total)
            journal.write(json.dumps([listed.name, listed.etag]) + "\n")
            journal.flush()
    _remove_others(folder / _OBJECTS, {o.name for o in found})


def _fetch_object(objects: Objects, listed: ListedObject, file: Path) -> Iterator[int]:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        stream = file.open("wb")
    except (OSError, ValueError) as error:  # ValueError: a zero byte
        if isinstance(error, OSError) and error.errno not in _NO_FILE:
            raise
        reason = getattr(error, "strerror", None) or error
        raise DatasetError(
            f"--source: {listed.name[:200]}: cannot be a file here: {reason}; "
            "rename the object, or leave it out with --suffix"
        ) from None
    with stream:
        for chunk in objects.chunks(listed.name, count=listed.bytes):
            stream.write(chunk)
            yield len(chunk)
        stream.flush()
        os.fsync(stream.fileno())


def _journal(folder: Path) -> dict[str, str]:
    """Return the ETag of each complete object; a line that a kill has torn ends the list."""
    found: dict[str, str] = {}
    with contextlib.suppress(FileNotFoundError, ValueError):
        for line in (folder / _JOURNAL).read_text().splitlines():
            name, etag = json.loads(line)
            found[name] = etag
    return found


def _remove_others(folder: Path, names: set[str]) -> None:
    """Remove what an earlier call has fetched and is no longer in the bucket."""
    for file in folder.rglob("*"):
        if file.is_file() and file.relative_to(folder).as_posix() not in names:
            file.unlink()


def _wanted(listed: ListedObject, suffixes: tuple[str, ...]) -> bool:
    path = PurePosixPath(listed.name)
    inside = not path.is_absolute() and ".." not in path.parts
    read = not is_hidden(listed.name) and has_suffix(listed.name, suffixes)
    return inside and read and not listed.name.endswith("/")
