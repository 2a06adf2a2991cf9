"""Read container logs with the options of `kubectl logs`. The shim writes them, see `Entry`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

from sandbox.node.shim import stamp

FOLLOW_S = 0.25
"""Polling interval of a followed log."""


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    follow: bool = False
    tail_lines: int | None = None
    since: float | None = None
    """Unix seconds; output written before is skipped."""
    timestamps: bool = False
    limit_bytes: int | None = None


class Entry(NamedTuple):
    """A line of the file. `is_whole`: the container's line ends here; otherwise the next entry continues it."""

    stamp: bytes
    is_whole: bool
    text: bytes


def parse_entry(line: bytes) -> Entry:
    when, _, rest = line.removesuffix(b"\n").partition(b" ")
    kind, _, text = rest.partition(b" ")
    return Entry(when, kind == b"F", text)


def read_log(path: Path, query: LogOptions, ended: Callable[[], bool]) -> Iterator[bytes]:
    """Yield the log in blocks; with `follow`, until `ended()` and the log is exhausted."""
    left, continues = query.limit_bytes, False
    for entries in _batches(path, query, ended):
        block = bytearray()
        for when, is_whole, text in entries:
            if query.timestamps and not continues:
                block += when + b" "
            block += text + (b"\n" if is_whole else b"")
            continues = not is_whole
        if left is not None:
            block = block[:left]
            left -= len(block)
        yield bytes(block)
        if left == 0:
            return


def _batches(path: Path, query: LogOptions, ended: Callable[[], bool]) -> Iterator[list[Entry]]:
    """Yield entries of the rotated file and the current one together, then what is added."""
    first = b"" if query.since is None else stamp(query.since).encode()
    rotated = Path(f"{path}.1")
    earlier = [parse_entry(line) for line in rotated.open("rb")] if rotated.exists() else []
    if not path.exists():
        return
    file = path.open("rb")
    try:
        begun = [one for one in [*earlier, *_read(file)] if one.stamp >= first]
        yield _last_lines(begun, query.tail_lines)
        while True:
            over = not query.follow or ended()  # before the read, so that no output is missed
            if entries := _read(file):
                yield [one for one in entries if one.stamp >= first]
            elif _is_replaced(path, file):
                file.close()
                file = path.open("rb")
            elif over:
                return
            else:
                time.sleep(FOLLOW_S)
    finally:
        file.close()


def _read(file: BufferedReader) -> list[Entry]:
    """Return the entries that were added; one that is being written is left."""
    entries = []
    while (line := file.readline()).endswith(b"\n"):
        entries.append(parse_entry(line))
    file.seek(-len(line), os.SEEK_CUR)
    return entries


def _last_lines(entries: list[Entry], count: int | None) -> list[Entry]:
    if count is None:
        return entries
    starts = [at for at in range(len(entries)) if at == 0 or entries[at - 1].is_whole]
    return entries[starts[max(len(starts) - count, 0)] :] if count and starts else []


def _is_replaced(path: Path, file: BufferedReader) -> bool:
    try:
        return path.stat().st_ino != os.fstat(file.fileno()).st_ino
    except OSError:
        return False
