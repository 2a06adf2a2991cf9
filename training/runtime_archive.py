"""The package `trainyard` as a zip, for images that do not contain it.

Each run gets the package in its own immutable ConfigMap, as it was when the run was launched: an upgrade of the
platform changes neither running pods nor later restarts of the same run.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import trainyard

ZIP_FILE: Final = "trainyard.zip"
_PACKAGE: Final = Path(trainyard.__file__).parent
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The oldest time that a zip can hold."""


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return a zip of files by name: sorted, with one time and one mode."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name])
    return stream.getvalue()


@cache
def package() -> bytes:
    """Return the zip of this checkout's package."""
    return pack(
        {
            path.relative_to(_PACKAGE.parent).as_posix(): path.read_bytes()
            for path in _PACKAGE.rglob("*.py")
        }
    )
