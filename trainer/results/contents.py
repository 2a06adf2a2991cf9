"""Files of a run directory that are copied to a bucket."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from trainyard.contract import CHECKPOINTS_DIR
from trainyard.objects import Objects
from trainyard.objects.upload import Observe, Uploader
from trainyard.store.interface import parse_step

_READ_MAX: Final = 64 * 1024 * 1024
"""Larger files are mapped, not read into memory."""


def results(run_dir: Path) -> Iterator[Path]:
    """Return the files of a run besides its checkpoints, in order: none that is hidden, unfinished or a link."""
    return (
        path for path in files(run_dir) if path.relative_to(run_dir).parts[0] != CHECKPOINTS_DIR
    )


def other_checkpoint_files(run_dir: Path) -> Iterator[Path]:
    """Return what is among the checkpoints and is none: files of programs that save without the library."""
    root = run_dir / CHECKPOINTS_DIR
    return (path for path in files(root) if parse_step(path.relative_to(root).parts[0]) is None)


def files(folder: Path) -> Iterator[Path]:
    """Return the files below a folder in order: none that is hidden, below a hidden folder, or a link."""
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(place, name) for name in names if not name.startswith(".")]
    return (path for path in sorted(found) if path.is_file() and not path.is_symlink())


def send(
    path: Path, to: Objects, name: str, uploader: Uploader, observe: Observe | None = None
) -> int:
    """Copy a file to the object `name`; return its size in bytes. Raises ObjectError and OSError.

    `observe` receives the content in order.
    """
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size <= _READ_MAX:
            return uploader.write(to, name, [file.read()], observe)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            view = memoryview(mapped)
            try:
                return uploader.write(to, name, [view], observe)
            finally:
                view.release()
