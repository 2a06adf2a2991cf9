"""Digest of the trainer's source, used as image digest where no image is built."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

PACKAGES: Final = ("trainer", "trainyard")
"""Folders that the image contains."""
OPS: Final = "ops"
"""Image of the commands that run in the cluster; it contains more folders."""
OPS_PACKAGES: Final = ("infra", "ops", "training", *PACKAGES)
_REQUIREMENTS: Final = "requirements.txt"
TRAINER: Final = "trainer"
LAYERS: Final = {TRAINER: (), "examples": ("examples/requirements.txt",)}
"""Images of a checkout by the last part of their repository: the pins that each adds to the trainer's."""


def files(root: Path, image: str = TRAINER) -> list[Path]:
    """Return the files under `root` (the project) that an image of it contains, sorted.

    These are the files of PACKAGES and the pinned requirements. `image`: a key of LAYERS; others are taken for
    the trainer's.
    """
    found = [
        path
        for package in (root / name for name in PACKAGES)
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    pins = (root / name for name in (_REQUIREMENTS, *LAYERS.get(image, ())))
    found += [path for path in pins if path.is_file()]
    return sorted(found, key=lambda path: path.relative_to(root).as_posix())


def ops_files(root: Path) -> list[Path]:
    """Return the files under `root` that the image OPS contains, sorted: sources, templates and data."""
    found = [
        path
        for name in OPS_PACKAGES
        for path in (root / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    found += [path for path in (root / _REQUIREMENTS,) if path.is_file()]
    return sorted(found, key=lambda path: path.relative_to(root).as_posix())


def digest(root: Path, image: str = TRAINER) -> str:
    """Return SHA-256 over relative paths and contents of `files(root, image)`: 64 hexadecimal digits."""
    total = hashlib.sha256()
    for path in ops_files(root) if image == OPS else files(root, image):
        content = path.read_bytes()
        # Lengths first: two different trees must not give the same stream of bytes.
        name = path.relative_to(root).as_posix().encode()
        total.update(f"{len(name)} {len(content)}\n".encode())
        total.update(name)
        total.update(content)
    return total.hexdigest()
