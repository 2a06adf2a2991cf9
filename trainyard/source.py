"""Unpack the source of a program: an archive in parts, verified before anything of it is written.

The platform packs a folder of the repository (training/source_archive.py) and mounts the archive;
`unpack` is its other half, in the container. Standard library only.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from trainyard.contract import CONFIG_MOUNT, EXIT_BAD_CONFIG, PROGRAM_FILE, SOURCE_ENV

PART: Final = "source.{:03d}"
"""Name of a part of the archive, by its index."""
UNPACKED_MAX: Final = 32 * 2**20
"""Bytes of an unpacked archive."""
_GZIP: Final = 16 + zlib.MAX_WBITS


def main(arguments: Sequence[str]) -> int:
    """Unpack the source of the container's program, then become the command after `--`.

    Returns the exit code of a configuration that cannot work.
    """
    try:
        settings = json.loads(Path(CONFIG_MOUNT, PROGRAM_FILE).read_text(encoding="utf-8"))
        if source := settings["source"]:
            unpack(Path(source["path"]), source["sha256"], Path(os.environ[SOURCE_ENV]))
    except (SourceError, OSError, ValueError, KeyError) as error:
        print(error, file=sys.stderr)
        return EXIT_BAD_CONFIG
    command = list(arguments)[1:]
    return os.execvp(command[0], command)


class SourceError(Exception):
    """The archive is missing, damaged, or not the one that the run names; the text is one line."""


def unpack(parts: Path, sha256: str, into: Path) -> Path:
    """Unpack the archive whose parts are in the folder `parts` to the folder `into`, and return that.

    `sha256` is the hash of the unpacked tar stream. `into` appears complete or not at all; one that exists is
    replaced, because a container that restarts in its pod finds the former one. Raises SourceError.
    """
    archive = _verified(parts, sha256)
    into.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{into.name}-", dir=into.parent))
    try:
        _extract(archive, part)
        part.chmod(0o755)
        shutil.rmtree(into, ignore_errors=True)
        part.rename(into)
    except OSError as error:
        raise SourceError(f"source: {into} cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return into


def _verified(parts: Path, sha256: str) -> bytes:
    found = sorted(parts.glob(PART.format(0).replace("000", "[0-9][0-9][0-9]")))
    if not found:
        raise SourceError(f"source: {parts} has no archive; it must have {PART.format(0)}")
    expand = zlib.decompressobj(_GZIP)
    try:
        packed = b"".join(path.read_bytes() for path in found)
        archive = expand.decompress(packed, UNPACKED_MAX + 1)
    except (OSError, zlib.error) as error:
        raise SourceError(f"source: the archive in {parts} cannot be read: {error}") from None
    if len(archive) > UNPACKED_MAX:
        raise SourceError(f"source: the archive is larger than {UNPACKED_MAX} bytes")
    actual = hashlib.sha256(archive).hexdigest()
    if actual != sha256:
        raise SourceError(
            f"source: the archive in {parts} has SHA-256 {actual[:16]}..., the run names {sha256[:16]}..."
        )
    return archive


def _extract(archive: bytes, into: Path) -> None:
    """Extract regular files and links that stay inside; the hash says who packed it, not that it is harmless."""
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
            for member in tar.getmembers():
                _check(member)
            if hasattr(tarfile, "data_filter"):
                tar.extractall(into, filter="data")
            else:  # Python before 3.10.12 and 3.11.4
                tar.extractall(into)
    except tarfile.TarError as error:
        raise SourceError(f"source: the archive is not valid: {error}") from None


def _check(member: tarfile.TarInfo) -> None:
    places = [PurePosixPath(member.name)]
    if member.issym():
        places.append(places[0].parent / member.linkname)
    if not (member.isreg() or member.issym()) or not all(map(_is_inside, places)):
        raise SourceError(f"source: {member.name!r} in the archive leaves its folder")


def _is_inside(place: PurePosixPath) -> bool:
    depth = 0
    for part in place.parts:
        depth += -1 if part == ".." else 1
        if depth < 0 or part == "/":
            return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
