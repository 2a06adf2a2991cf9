"""The digest of the trainer's source: what stands for an image digest where no image is built."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

NOT_IN_AN_IMAGE: Final = frozenset(
    {"runs", "configs", "deployment", "compare", "curve.py", "advise.py"}
)
"""Of `training/`: what deploys runs, and what people look at them with."""
_EXCLUDED: Final = NOT_IN_AN_IMAGE | {"__pycache__"}
_REQUIREMENTS: Final = "requirements.txt"


def files(root: Path) -> list[Path]:
    """Every file under `root` (the project) that the trainer's image is made of, sorted.

    Python files of `training/` and the pinned requirements. Runs and hyperparameters are not part
    of an image: they reach a container in its ConfigMap. Neither is what deploys a run or compares
    some: a change there must not make new runs of all old ones.
    """
    package = root / "training"
    found = [
        path
        for path in package.rglob("*.py")
        if path.is_file() and not _EXCLUDED.intersection(path.relative_to(package).parts)
    ]
    requirements = root / _REQUIREMENTS
    if requirements.is_file():
        found.append(requirements)
    return sorted(found, key=lambda path: path.relative_to(root).as_posix())


def digest(root: Path) -> str:
    """SHA-256 over relative paths and contents of `files(root)`: 64 hexadecimal characters."""
    total = hashlib.sha256()
    for path in files(root):
        content = path.read_bytes()
        # Lengths first: no two different trees may give the same stream of bytes.
        name = path.relative_to(root).as_posix().encode()
        total.update(f"{len(name)} {len(content)}\n".encode())
        total.update(name)
        total.update(content)
    return total.hexdigest()
