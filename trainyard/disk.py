"""Durable writes: fsync files and folders, replace small files atomically."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def fsync_folder(folder: Path) -> None:
    """Fsync a folder, which makes created, renamed and removed names durable. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(file: Path, content: bytes | memoryview) -> None:
    with file.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def replace_text(file: Path, text: str) -> None:
    # Pods of other hosts have the same process ids.
    temporary = file.with_name(f".{file.name}-{os.uname().nodename}-{os.getpid()}")
    try:
        write_durably(temporary, text.encode())
        temporary.replace(file)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
    fsync_folder(file.parent)
