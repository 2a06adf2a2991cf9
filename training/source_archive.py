"""Pack a folder of the repository as the source of a program: equal contents give equal archives.

What git ignores is left out; files that are not committed yet are packed, so that a script can be tried.
docs/adr/08-runs.md says why the archive is stored in ConfigMaps.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from infra.sections.errors import ConfigIssue, issue, shown
from infra.sections.plaintext_secrets import secrets_in
from training import lineage
from training.program import Source
from trainyard.source import UNPACKED_MAX

PACKED_MAX: Final = 4 * 2**20
"""Bytes of a compressed archive: etcd is not a file store, and what is larger is rarely code."""
_KEY: Final = "program.source"
_NAMED: Final = 3
"""Largest files that a message names."""
_GIT_TIMEOUT_S: Final = 60
_LEFT_OUT: Final = frozenset({".git", "__pycache__"})
"""Left out where no git says what to leave out."""


class GitError(Exception):
    """git could not list the files of a folder."""


def load(folder: str, root: Path) -> tuple[Source | None, list[ConfigIssue]]:
    """Return the packed folder, given by its path in the repository at `root`, or why it cannot be packed."""
    place = root / folder
    if PurePosixPath(folder).is_absolute() or not place.resolve().is_relative_to(root.resolve()):
        return None, [
            _issue(
                "source-outside",
                f"{shown(folder)} is not in the repository",
                "must be a folder of the repository, by its path from the top",
                "move it there",
            )
        ]
    if not place.is_dir():
        return None, [
            _issue(
                "missing-source",
                f"{shown(folder)} is not a folder",
                "must be a folder of the repository, by its path from the top",
                "correct it",
            )
        ]
    try:
        names = listed(place)
    except GitError as error:
        return None, [
            _issue(
                "git-failed",
                f"git cannot list {shown(folder)}: {error}",
                "must be readable by git, which knows what to leave out",
                "correct it",
            )
        ]
    problems = [*_links(place, names), *_contents(place, names)]
    if problems:
        return None, problems
    stream = pack({name: place / name for name in names})
    packed = gzip.compress(stream, mtime=0)
    if len(packed) > PACKED_MAX:
        return None, [_too_large(place, names, len(packed), PACKED_MAX, "compressed")]
    digest = hashlib.sha256(stream).hexdigest()
    return Source(
        folder=folder, sha256=digest, dirty=lineage.is_dirty(place) is not False, archive=packed
    ), []


def listed(folder: Path) -> list[str]:
    """Return the files of a folder that are packed, sorted: all that git tracks or would add.

    Outside of a git checkout these are all files. Raises GitError where git fails.
    """
    if not any((parent / ".git").exists() for parent in (folder, *folder.resolve().parents)):
        return sorted(
            path.relative_to(folder).as_posix()
            for path in folder.rglob("*")
            if (path.is_symlink() or not path.is_dir())
            and not _LEFT_OUT.intersection(path.relative_to(folder).parts)
        )
    names = _git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    # A deleted file is listed until its deletion is committed.
    return sorted({name for name in names.split("\0") if name and os.path.lexists(folder / name)})


def pack(files: Mapping[str, Path]) -> bytes:
    """Return a tar stream of files and links by name: sorted, without times and owners, with two modes."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(files):
            path, member = files[name], tarfile.TarInfo(name)
            if path.is_symlink():
                member.type, member.linkname = tarfile.SYMTYPE, os.readlink(path)
                tar.addfile(member)
                continue
            content = path.read_bytes()
            member.size = len(content)
            member.mode = 0o755 if os.access(path, os.X_OK) else 0o644
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=_GIT_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
        raise GitError(str(error)) from None
    if done.returncode:
        raise GitError(" ".join(done.stderr.split()) or f"exit code {done.returncode}")
    return done.stdout


def _links(folder: Path, names: list[str]) -> Iterator[ConfigIssue]:
    top = folder.resolve()
    for name in names:
        path = folder / name
        if path.is_symlink():
            target = os.readlink(path)
            if os.path.isabs(target) or not path.resolve().is_relative_to(top):
                yield _issue(
                    "link-outside",
                    f"{name} is a link to {shown(target)}, outside of the folder",
                    "must contain links to its own files only",
                    "copy the file, or remove the link",
                )
        elif not path.is_file():
            yield _issue(
                "not-a-file",
                f"{name} is not a regular file (a submodule, a device, ...)",
                "must contain regular files only",
                "remove it, or name another folder",
            )


def _contents(folder: Path, names: list[str]) -> Iterator[ConfigIssue]:
    """Emptiness, sizes and credentials."""
    files = [
        name for name in names if (folder / name).is_file() and not (folder / name).is_symlink()
    ]
    if not files:
        yield _issue(
            "empty-source",
            "the folder has no files that git does not ignore",
            "must contain the program",
            "name another folder",
        )
    size = sum((folder / name).stat().st_size for name in files)
    if size > UNPACKED_MAX // 2:  # the other half is for headers and padding of small files
        yield _too_large(folder, names, size, UNPACKED_MAX // 2, "in all")
        return
    for name in files:
        text = (folder / name).read_bytes().decode("utf-8", errors="replace")
        yield from secrets_in(text, f"{_KEY}: {name}")


def _too_large(folder: Path, names: list[str], size: int, limit: int, how: str) -> ConfigIssue:
    sizes = sorted(((folder / name).lstat().st_size, name) for name in names)[: -_NAMED - 1 : -1]
    largest = ", ".join(f"{name} ({_mebibytes(one)})" for one, name in sizes)
    return _issue(
        "source-too-large",
        f"{_mebibytes(size)} {how}; the largest files are {largest}",
        f"must be at most {_mebibytes(limit)} {how}",
        "put data on the team's dataset volume and libraries in the image, or ignore them in .gitignore",
    )


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


def _issue(code: str, problem: str, valid: str, action: str) -> ConfigIssue:
    return issue(code, _KEY, problem, valid, action)
