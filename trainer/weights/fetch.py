"""Fetch a model's files into a folder that appears when all of them are verified.

    FOLDER/.fetched.json    source, size and SHA-256 of each file; the files of a model are not hidden
    .NAME.fetching/files/   what has been fetched so far: a call that follows a killed one fetches the rest

A folder that exists is never changed or removed: it is complete, or the caller learns what is wrong with it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Final

from trainer.prepare.staging import missing_space, staging_folder
from trainer.prepare.state import ProgressCallback, RetryableError
from trainer.weights.places import Place, RemoteFile, WeightsError
from trainyard.disk import fsync_folder, write_durably

MANIFEST_FILE: Final = ".fetched.json"
_CONFIG_FILE: Final = "config.json"
_INDEX_FILE: Final = "model.safetensors.index.json"
_GIT_CHARACTERS: Final = 40
"""Hexadecimal characters of git's name for a file's content, which hubs state of small files."""


def fetch(place: Place, source: str, folder: Path, progress: ProgressCallback) -> bool:
    """Fetch what is missing; return False if the folder was complete.

    `source`: the reference, for the manifest and messages. Raises WeightsError, RetryableError and OSError.
    """
    if _is_complete(folder, source):
        return False
    staging = folder.with_name(f".{folder.name}.fetching")
    with staging_folder(staging, BaseException):
        if _is_complete(folder, source):  # by the process that held the lock
            return False
        files = staging / "files"
        files.mkdir(exist_ok=True)
        wanted = _wanted(place, source)
        missing = [one for one in wanted if not (files / one.name).exists()]
        if lacking := missing_space(staging, sum(one.bytes for one in missing)):
            raise WeightsError(f"{source}: {lacking} at {staging.parent}; free some space")
        place.download(missing, files, progress)
        _publish(files, source, wanted)
        files.rename(folder)
        fsync_folder(folder.parent)
    return True


def _is_complete(folder: Path, source: str) -> bool:
    """Return False if there is no folder. Raises WeightsError for one with anything else in it."""
    try:
        found = json.loads((folder / MANIFEST_FILE).read_text())
        sizes = {str(name): one["bytes"] for name, one in found["files"].items()}
        problem = "" if found["source"] == source else f"holds {found['source']!r}"
    except FileNotFoundError:
        if not folder.exists():
            return False
        sizes, problem = {}, "was not written by this command"
    except (ValueError, KeyError, TypeError, AttributeError, NotADirectoryError):
        sizes, problem = {}, f"its {MANIFEST_FILE} is not readable"
    for name, size in sizes.items():
        file = folder / name
        if not problem and not (file.is_file() and file.stat().st_size == size):
            problem = f"{name} is missing or not of {size} bytes"
    if problem:
        raise WeightsError(
            f"{folder}: exists, but {problem}; must be absent or hold {source}; remove it"
        )
    return True


def _wanted(place: Place, source: str) -> list[RemoteFile]:
    found = sorted(place.files(), key=lambda file: file.name)
    names = {file.name for file in found}
    if _CONFIG_FILE not in names:
        raise WeightsError(f"{source}: has no {_CONFIG_FILE}; must be a model of transformers")
    if not any(name.endswith(".safetensors") for name in names):
        raise WeightsError(
            f"{source}: has no model.safetensors, nor parts of one; pickled weights are not read"
        )
    return found


def _publish(files: Path, source: str, wanted: list[RemoteFile]) -> None:
    """Verify the files, remove others and write the manifest."""
    recorded = {}
    for file in wanted:
        path = files / file.name
        with path.open("rb+") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            os.fsync(stream.fileno())
        if path.stat().st_size != file.bytes or not _is_as_stated(path, digest, file.stated):
            path.unlink()
            raise RetryableError(
                f"{source}: {file.name}: its content differs from the checksum that the source states; "
                "it is fetched again at the next attempt"
            )
        recorded[file.name] = {"bytes": file.bytes, "sha256": digest}
    for other in [one for one in files.iterdir() if one.name not in recorded]:
        shutil.rmtree(other) if other.is_dir() else other.unlink()
    _check_index(files, source)
    manifest = json.dumps({"source": source, "files": recorded}, indent=1)
    write_durably(files / MANIFEST_FILE, f"{manifest}\n".encode())
    fsync_folder(files)


def _is_as_stated(path: Path, digest: str, stated: str) -> bool:
    """Return whether a file has the checksum that its place states; `digest`: its SHA-256."""
    if not stated or stated == digest:
        return True
    content = path.read_bytes() if len(stated) == _GIT_CHARACTERS else b""
    named = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
    return named.hexdigest() == stated


def _check_index(files: Path, source: str) -> None:
    """Require the shards that the index of the weights names."""
    if not (files / _INDEX_FILE).exists():
        return
    try:
        named = set(json.loads((files / _INDEX_FILE).read_text())["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError):
        raise WeightsError(f"{source}: {_INDEX_FILE} is not an index of weights") from None
    if missing := sorted(str(n) for n in named if not (files / str(n)).is_file()):
        raise WeightsError(f"{source}: {_INDEX_FILE} names {missing[0]}, which is not there")
