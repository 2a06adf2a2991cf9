"""Folders in which a command builds what appears at once, and which a killed call leaves to the next one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK_FILE = ".lock"


@contextmanager
def staging_folder(folder: Path, *keep: type[BaseException]) -> Iterator[None]:
    """Create a hidden folder and hold its lock, and remove it at the end.

    An error of one of the types `keep` leaves it, so that the next call continues. A second process waits; what it
    waited for may be done by then.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / LOCK_FILE).open("w") as lock:
        with contextlib.suppress(OSError):  # some file systems have no locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        folder.mkdir(mode=0o700, exist_ok=True)  # the process that held the lock removes it
        try:
            yield
        except keep:
            raise
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(folder: Path) -> None:
    """Remove a staging folder unless a process holds it."""
    with contextlib.suppress(OSError), (folder / LOCK_FILE).open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)


def missing_space(folder: Path, needed: int) -> str:
    """Return how much of `needed` bytes a folder's volume cannot hold; empty if it can."""
    free = shutil.disk_usage(folder).free
    return "" if needed <= free else f"{needed / 1e9:.1f} GB to write, {free / 1e9:.1f} GB free"


def write_chunks(chunks: Iterable[bytes], file: Path) -> Iterator[bytes]:
    """Write a file durably from chunks; yields each of them once it is written."""
    with file.open("wb") as stream:
        for chunk in chunks:
            stream.write(chunk)
            yield chunk
        stream.flush()
        os.fsync(stream.fileno())
