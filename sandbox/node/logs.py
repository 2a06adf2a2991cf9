"""Read container logs with the options of `kubectl logs`."""

from __future__ import annotations

import bisect
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sandbox.node.shim import STAMP

BLOCK_BYTES = 65536
FOLLOW_S = 0.25
"""Polling interval of a followed log."""


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """PodLogOptions without the container."""

    follow: bool = False
    tail_lines: int | None = None
    since: float | None = None
    """Unix seconds; output written before is skipped."""
    timestamps: bool = False
    limit_bytes: int | None = None


class WriteTimes:
    """Write times of a log file's parts (LOG.times)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._offsets: list[int] = []
        self._seconds: list[float] = []

    def refresh(self) -> None:
        """Read entries that were added."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._read)
                data = file.read()
        except OSError:
            return
        whole = len(data) - len(data) % STAMP.size
        for seconds, offset in STAMP.iter_unpack(data[:whole]):
            self._seconds.append(seconds)
            self._offsets.append(offset)
        self._read += whole

    def split(self, block: bytes, offset: int) -> Iterator[tuple[bytes, float]]:
        """Yield the parts of the block at `offset` with the times at which they were written; 0 if unknown."""
        index = bisect.bisect_right(self._offsets, offset) - 1
        while block:
            end = (
                self._offsets[index + 1] if index + 1 < len(self._offsets) else offset + len(block)
            )
            part = block[: end - offset]
            yield part, self._seconds[index] if index >= 0 else 0.0
            block, offset, index = block[len(part) :], offset + len(part), index + 1

    def first_since(self, seconds: float) -> int | None:
        """Return the offset of the first byte written at or after `seconds`, or None."""
        for written, offset in zip(self._seconds, self._offsets, strict=True):
            if written >= seconds:
                return offset
        return None


def read_log(path: Path, query: LogOptions, ended: Callable[[], bool]) -> Iterator[bytes]:
    """Yield the log in blocks; with `follow`, until `ended()` and the log is exhausted."""
    blocks = _limited(_stamped(path, query, ended), query.limit_bytes)
    yield from blocks


def _stamped(path: Path, query: LogOptions, ended: Callable[[], bool]) -> Iterator[bytes]:
    """Yield blocks, with a timestamp before every line if requested."""
    rest, rest_at = b"", 0.0
    for block, seconds in _segments(path, query, ended):
        if not query.timestamps:
            yield block
            continue
        *lines, tail = (rest + block).split(b"\n")
        first = rest_at if rest else seconds
        stamped = [_line(first if i == 0 else seconds, line) for i, line in enumerate(lines)]
        rest, rest_at = tail, first if not lines else seconds
        if stamped:
            yield b"".join(stamped)
    if rest:
        yield _line(rest_at, rest)


def _line(seconds: float, line: bytes) -> bytes:
    when = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return when.encode() + b" " + line + b"\n"


def _segments(
    path: Path, query: LogOptions, ended: Callable[[], bool]
) -> Iterator[tuple[bytes, float]]:
    """Yield (bytes, write time) from the rotated file, then from the current one."""
    rotated = Path(f"{path}.1")
    starts = _starts([rotated, path], query)
    for segment in (rotated, path):
        if starts[segment] is None or not segment.exists():
            continue
        last = segment == path
        yield from _segment(segment, starts[segment] or 0, query.follow and last, query, ended)


def _starts(segments: list[Path], query: LogOptions) -> dict[Path, int | None]:
    """Return the start offset in each file; None skips the file."""
    starts: dict[Path, int | None] = dict.fromkeys(segments, 0)
    if query.since is not None:
        for segment in segments:
            times = WriteTimes(Path(f"{segment}.times"))
            times.refresh()
            starts[segment] = times.first_since(query.since)
        if query.follow and starts[segments[-1]] is None:
            starts[segments[-1]] = _size(segments[-1])
    if query.tail_lines is not None:
        left = query.tail_lines
        for segment in reversed(segments):
            offset, found = _tail(segment, left)
            begin = starts[segment]
            starts[segment] = None if begin is None else max(begin, offset)
            left -= found
    return starts


def _tail(path: Path, lines: int) -> tuple[int, int]:
    """Return (offset of the last `lines` lines, their number)."""
    size = _size(path)
    if lines <= 0 or not size:
        return size, 0
    with open(path, "rb") as file:
        end, found, position = size, 0, size
        while position > 0:
            step = min(BLOCK_BYTES, position)
            position -= step
            file.seek(position)
            block = file.read(step)
            index = len(block)
            while (index := block.rfind(b"\n", 0, index)) >= 0:
                if position + index == end - 1:
                    continue  # ends the last line
                found += 1
                if found == lines:
                    return position + index + 1, found
    return 0, found + 1


def _segment(
    path: Path, start: int, follow: bool, query: LogOptions, ended: Callable[[], bool]
) -> Iterator[tuple[bytes, float]]:
    """Yield one file from `start`; follow rotations if requested."""
    while True:
        times = WriteTimes(Path(f"{path}.times"))
        with open(path, "rb") as file:
            offset = start
            file.seek(offset)
            while True:
                over = (
                    not follow or ended()
                )  # evaluated before the read, so that no output is missed
                block = file.read(BLOCK_BYTES)
                if block:
                    if query.timestamps:
                        times.refresh()
                        yield from times.split(block, offset)
                    else:
                        yield block, 0.0
                    offset += len(block)
                elif follow and _replaced(path, file.fileno()):
                    break
                elif over:
                    return
                else:
                    time.sleep(FOLLOW_S)
        start = 0


def _replaced(path: Path, fd: int) -> bool:
    try:
        return os.stat(path).st_ino != os.fstat(fd).st_ino
    except OSError:
        return False


def _limited(blocks: Iterator[bytes], limit: int | None) -> Iterator[bytes]:
    for block in blocks:
        if limit is None:
            yield block
            continue
        yield block[:limit]
        limit -= len(block)
        if limit <= 0:
            return


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
