"""The program in a transfer pod, to which `trainyard data` and `trainyard run fetch` talk on its standard input.

Clients send it along, to run in any image, so it uses the standard library only. A request is a line of JSON with
`op`, an answer is one with its result or with `error`; where a line has `bytes`, as many follow it. Paths are
relative to the root, and never leave it, not by a link either. A file is written beside its place and takes its
name when its SHA-256 is right; what arrived of an interrupted one stays, and the next client sends the rest.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, BinaryIO

ACTIVITY = "/tmp/.trainyard-activity"
"""What keeps the pod from being idle; as in the program of dev pods."""
BLOCK = 1 << 20
SPARE = 64 << 20
"""Bytes that are left free on the volume."""
PART = ".trainyard-part"
FILES_MAX = 200_000
"""Files of one listing."""


class Refused(Exception):
    """A request cannot be met; the text says why."""


def digest(place: "str | os.PathLike[str]", touch: "Callable[[], None]" = lambda: None) -> str:
    """Return the SHA-256 of a file; `touch` is called for each block."""
    found = hashlib.sha256()
    with open(place, "rb") as file:
        while block := file.read(BLOCK):
            found.update(block)
            touch()
    return found.hexdigest()


def part_of(place: str, sha256: str) -> str:
    """Return where the bytes of a file lie until all of them are there."""
    folder, name = os.path.split(place)
    return os.path.join(folder, f".{name[:100]}{PART}-{sha256[:16]}")


class Server:
    """Serves one client. `root`: the folder that paths are relative to."""

    def __init__(self, root: str, source: "BinaryIO", sink: "BinaryIO") -> None:
        self._root = os.path.realpath(root)
        self._source = source
        self._sink = sink
        self._touched = 0.0

    def run(self) -> None:
        """Answer requests until the client goes."""
        while line := self._source.readline():
            self._touch()
            request = json.loads(line)
            try:
                answer = self._answer(request)
            except Refused as error:
                answer = {"error": str(error)}
            except OSError as error:
                answer = {"error": f"{request.get('path', '')}: {error.strerror}"}
            if answer is not None:
                self._say(answer)

    def _answer(self, request: "dict[str, Any]") -> "dict[str, Any] | None":
        op, path = request["op"], request.get("path", "")
        if op == "write":
            return self._write(request)
        place = self._place(path)
        if op == "read":
            self._read(place, path, request["offset"], request["bytes"])
            return None
        if op == "list":
            return {"files": list(self._files(place, path))}
        if op == "folders":
            return {"entries": list(self._entries(place, path))}
        if op == "hash":
            return self._hash(place, path)
        if op == "begin":
            return self._begin(place, path, request)
        if op == "remove":
            return self._remove(place, path)
        raise Refused(f"{op}: no such request; the client is another version")

    def _say(self, answer: "dict[str, Any]") -> None:
        self._sink.write(json.dumps(answer).encode() + b"\n")
        self._sink.flush()

    def _touch(self) -> None:
        if time.monotonic() - self._touched > 10:
            self._touched = time.monotonic()
            with contextlib.suppress(OSError), open(ACTIVITY, "a"):
                os.utime(ACTIVITY)

    def _place(self, path: str) -> str:
        parts = [part for part in path.split("/") if part]
        if path.startswith("/") or ".." in parts or "\0" in path:
            raise Refused(f"{path}: leaves the folder; must be relative to it, without ..")
        place = os.path.join(self._root, *parts)
        real = os.path.realpath(os.path.dirname(place) if parts else place)
        if real != self._root and not real.startswith(self._root + os.sep):
            raise Refused(
                f"{path}: a link in it leads out of the folder; name a path without links"
            )
        if os.path.islink(place):
            raise Refused(f"{path}: is a link; name what it points to")
        return place

    def _walk(self, place: str) -> "Iterator[tuple[str, os.stat_result]]":
        """Yield every file below a place, or the file itself; links and unfinished files are left out."""
        if os.path.isfile(place):
            yield place, os.stat(place)
            return
        if not os.path.isdir(place):
            raise FileNotFoundError(2, "does not exist")
        for folder, folders, names in os.walk(place):
            folders.sort()
            for name in sorted(names):
                file = os.path.join(folder, name)
                if PART not in name and not os.path.islink(file):
                    with contextlib.suppress(FileNotFoundError):
                        yield file, os.stat(file)

    def _files(self, place: str, path: str) -> "Iterator[list[Any]]":
        for number, (file, known) in enumerate(self._walk(place)):
            if number == FILES_MAX:
                raise Refused(f"{path}: has more than {FILES_MAX} files; name a folder in it")
            self._touch()
            yield [os.path.relpath(file, self._root), known.st_size, known.st_mtime]

    def _entries(self, place: str, path: str) -> "Iterator[list[Any]]":
        """Yield name, whether it is a folder, files, bytes and newest change of what is in a folder."""
        if not os.path.isdir(place):
            raise Refused(f"{path or '.'}: is not a folder; name one")
        for name in sorted(os.listdir(place)):
            below = os.path.join(place, name)
            if PART in name or os.path.islink(below):
                continue
            files, size, newest = 0, 0, 0.0
            for _, known in self._walk(below):
                self._touch()
                files, size = files + 1, size + known.st_size
                newest = max(newest, known.st_mtime)
            yield [name, os.path.isdir(below), files, size, newest]

    def _hash(self, place: str, path: str) -> "dict[str, Any]":
        if not os.path.isfile(place):
            raise Refused(f"{path}: is not a file")
        return {"size": os.path.getsize(place), "sha256": digest(place, self._touch)}

    def _begin(self, place: str, path: str, request: "dict[str, Any]") -> "dict[str, Any]":
        """Say where to go on with a file: `same` is there already, `other` is another file of that name."""
        if os.path.isdir(place):
            raise Refused(f"{path}: is a folder on the volume; remove it, or choose another name")
        if os.path.isfile(place):
            equal = os.path.getsize(place) == request["size"]
            if equal and digest(place, self._touch) == request["sha256"]:
                return {"state": "same"}
            if not request["force"]:
                return {"state": "other"}
        with contextlib.suppress(FileNotFoundError):
            size = os.path.getsize(part_of(place, request["sha256"]))
            if size <= request["size"]:
                return {"state": "partial", "offset": size}
        return {"state": "partial", "offset": 0}

    def _write(self, request: "dict[str, Any]") -> "dict[str, Any]":
        left = request["bytes"]
        try:
            place = self._place(request["path"])
            os.makedirs(os.path.dirname(place), exist_ok=True)
            free = shutil.disk_usage(os.path.dirname(place)).free
            if free < left + SPARE:
                raise Refused(
                    f"{request['path']}: the volume has {free / 1e9:.2f} GB free, {left / 1e9:.2f} GB are missing;"
                    " remove something, or ask for a larger volume"
                )
            part = part_of(place, request["sha256"])
            with open(part, "ab") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    raise Refused(
                        f"{request['path']}: another client is writing it; wait for it"
                    ) from None
                file.truncate(request["offset"])
                while left:
                    block = self._source.read(min(left, BLOCK))
                    if not block:
                        raise EOFError
                    left -= len(block)
                    file.write(block)
                    self._touch()
                file.flush()
                os.fsync(file.fileno())
                if digest(part, self._touch) != request["sha256"]:
                    os.unlink(part)
                    raise Refused(f"{request['path']}: changed while it was sent; send it again")
                os.replace(part, place)
            folder = os.open(os.path.dirname(place), os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
            return {"state": "written"}
        finally:
            # What the client sends of a refused file is not the next request.
            while left and (block := self._source.read(min(left, BLOCK))):
                left -= len(block)

    def _read(self, place: str, path: str, offset: int, left: int) -> None:
        if not os.path.isfile(place):
            raise Refused(f"{path}: is not a file")
        with open(place, "rb") as file:
            file.seek(offset)
            self._say({"bytes": left})
            while left:
                # Of a file that was cut off the count stays right; its digest tells.
                block = file.read(min(left, BLOCK)) or bytes(min(left, BLOCK))
                self._sink.write(block)
                left -= len(block)
                self._touch()
        self._sink.flush()

    def _remove(self, place: str, path: str) -> "dict[str, Any]":
        if place == self._root:
            raise Refused("the whole folder cannot be removed; name what is in it")
        found = [known.st_size for _, known in self._walk(place)]
        if os.path.isdir(place):
            shutil.rmtree(place)
        else:
            os.unlink(place)
        return {"files": len(found), "bytes": sum(found)}


if __name__ == "__main__":
    with contextlib.suppress(EOFError, BrokenPipeError):
        Server(sys.argv[1], sys.stdin.buffer, sys.stdout.buffer).run()
