"""Copy files to and from a team's volume: verified by SHA-256, resumable, all mistakes at once."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ops.cluster import ClusterError
from ops.data import transfer
from ops.data.channel import BLOCK, Channel
from ops.data.transfer import PART

Progress = Callable[[int, int], None]
"""Receives the bytes that are there, and all."""

_SPARE: Final = 64 << 20
"""Bytes that are left free on the local disk."""


@dataclass(frozen=True, kw_only=True)
class Copied:
    """What a command did."""

    files: int = 0
    """Copied now."""
    bytes: int = 0
    """Of them, sent or received now."""
    same: int = 0
    """Files that were there already."""


@dataclass(frozen=True)
class Local:
    """A file to send: where it is, and its path below the target."""

    path: Path
    name: str
    size: int


def local_files(source: Path, target: str) -> list[Local]:
    """Return the files of a file or folder. Raises ClusterError with a line for each that cannot be sent."""
    found: list[Local] = []
    wrong: list[str] = []
    if not source.exists():
        raise ClusterError(f"{source}: does not exist; must be a file or a folder; correct it")
    for path in [source] if source.is_file() else _below(source):
        name = target if path == source else f"{target}/{path.relative_to(source).as_posix()}"
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode) or (path == source and path.is_file()):
            found.append(Local(path, name, path.stat().st_size))
            if not os.access(path, os.R_OK):
                wrong.append(f"{path}: is not readable; must be; change its permissions")
        elif not stat.S_ISDIR(mode):
            kind = "a symbolic link" if stat.S_ISLNK(mode) else "not a file"
            wrong.append(f"{path}: is {kind}; must be a file; replace or remove it")
        if PART in path.name:
            wrong.append(f"{path}: {PART} is part of its name; must not be; rename it")
    if not found and not wrong:
        wrong.append(f"{source}: has no files; must have at least one; choose another")
    if wrong:
        raise ClusterError("\n".join(wrong))
    return found


def _below(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders.sort()
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        yield from (Path(parent) / name for name in sorted([*names, *links]))


def put(channel: Channel, files: Sequence[Local], force: bool, progress: Progress) -> Copied:
    """Send files. Raises ClusterError, with nothing written, if other files have their names (without `force`)."""
    whole, done, same = sum(one.size for one in files), 0, 0
    begun: list[tuple[Local, str, int]] = []
    others: list[str] = []
    for one in files:
        sha256 = _local_digest(one.path)
        asked = {"size": one.size, "sha256": sha256, "force": force}
        found = channel.ask("begin", one.name, **asked)
        if found["state"] == "same":
            same, done = same + 1, done + one.size
            progress(done, whole)
        elif found["state"] == "other":
            others.append(
                f"{one.name}: another file of this name is on the volume; choose another, or replace it: --force"
            )
        else:
            begun.append((one, sha256, int(found["offset"])))
    if others:
        raise ClusterError("\n".join(others))
    sent = 0
    for one, sha256, offset in begun:
        done += offset
        for block in _send(channel, one, sha256, offset):
            sent, done = sent + block, done + block
            progress(done, whole)
    return Copied(files=len(begun), bytes=sent, same=same)


def _send(channel: Channel, one: Local, sha256: str, offset: int) -> Iterator[int]:
    """Send the rest of a file; yield the bytes of each block."""
    left = one.size - offset
    head: dict[str, Any] = {"op": "write", "path": one.name, "sha256": sha256}
    channel.send(head | {"offset": offset, "bytes": left})
    with one.path.open("rb") as file:
        file.seek(offset)
        while left:
            # A file that became shorter is filled up; the pod finds that its digest is wrong.
            block = file.read(min(left, BLOCK)) or bytes(min(left, BLOCK))
            left -= len(block)
            channel.write(block)
            yield len(block)
    channel.flush()
    channel.answer()


def get(
    channel: Channel,
    files: Sequence[tuple[str, int]],
    to: Path,
    progress: Progress,
    *,
    replace: bool = True,
) -> Copied:
    """Receive files, given by path on the volume and size, below a folder; the path's first part is kept.

    A local file with the same content is left; another of its name is replaced only once the new one is complete,
    and not at all without `replace`. Raises ClusterError.
    """
    try:
        missing = _missing(channel, files, to)
        others = [to / path for path, _ in missing if (to / path).exists()]
        if others and not replace:
            raise ClusterError(
                "\n".join(
                    f"{one}: another file of this name is here; use another folder, or replace it: --force"
                    for one in others
                )
            )
        to.mkdir(parents=True, exist_ok=True)
        whole, needed = sum(size for _, size in files), sum(size for _, size in missing)
        free = shutil.disk_usage(to).free
        if missing and free < needed + _SPARE:
            raise ClusterError(
                f"{to}: {free / 1e9:.2f} GB free, {needed / 1e9:.2f} GB are needed; make room, or use another --to"
            )
        done, received = whole - needed, 0
        progress(done, whole)
        for path, size in missing:
            before = done
            for block in _receive(channel, path, to / path):
                received, done = received + block, done + block
                progress(min(done, whole), whole)
            done = before + size
            progress(done, whole)
        return Copied(files=len(missing), bytes=received, same=len(files) - len(missing))
    except OSError as error:
        raise ClusterError(_local_text(error, to)) from None


def _missing(channel: Channel, files: Sequence[tuple[str, int]], to: Path) -> list[tuple[str, int]]:
    """Return the files that are not here with the same content."""
    found = []
    for path, size in files:
        place = to / path
        equal = place.is_file() and place.stat().st_size == size
        if not equal or channel.ask("hash", path)["sha256"] != transfer.digest(place):
            found.append((path, size))
    return found


def _local_text(error: OSError, place: Path) -> str:
    """Return one line about a local file that cannot be read or written."""
    # A rename names its target second.
    return f"{error.filename2 or error.filename or place}: {error.strerror}; correct it, and run the command again"


def _receive(channel: Channel, path: str, place: Path) -> Iterator[int]:
    """Receive the rest of a file beside its place, and move it there; yield the bytes of each block."""
    known = channel.ask("hash", path)
    place.parent.mkdir(parents=True, exist_ok=True)
    part = Path(transfer.part_of(str(place), known["sha256"]))
    with part.open("ab") as file:
        offset = min(file.tell(), int(known["size"]))
        file.truncate(offset)
        left = int(known["size"]) - offset
        channel.ask("read", path, offset=offset, bytes=left)
        for block in channel.body(left):
            file.write(block)
            yield len(block)
        file.flush()
        os.fsync(file.fileno())
    if transfer.digest(part) != known["sha256"]:
        part.unlink()
        raise ClusterError(f"{path}: changed while it was read; fetch it again")
    part.replace(place)


def _local_digest(path: Path) -> str:
    """Return the digest of a file to send. Raises ClusterError if it cannot be read."""
    try:
        return transfer.digest(path)
    except OSError as error:
        raise ClusterError(_local_text(error, path)) from None
