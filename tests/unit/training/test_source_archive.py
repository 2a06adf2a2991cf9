"""Packing a program's source, and unpacking it only if it is what was packed."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from training import source_archive
from trainyard.source import PART, SourceError, unpack


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def tree(folder: Path) -> Path:
    (folder / "code/lib").mkdir(parents=True)
    (folder / "code/train.py").write_text("print(1)\n")
    (folder / "code/lib/b.py").write_text("B = 2\n")
    return folder


def names(archive: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(archive))) as tar:
        return tar.getnames()


def test_the_archive_does_not_depend_on_times_owners_or_the_order_of_files(tmp_path: Path) -> None:
    first, _ = source_archive.load("code", tree(tmp_path / "one"))
    second_root = tree(tmp_path / "two")
    for path in (second_root / "code").rglob("*.py"):
        os.utime(path, (1, 1))
        path.chmod(0o600)
    second, _ = source_archive.load("code", second_root)
    assert first and second
    assert (first.sha256, first.archive) == (second.sha256, second.archive)


def test_a_mode_that_matters_is_a_part_of_the_archive(tmp_path: Path) -> None:
    root = tree(tmp_path)
    before, _ = source_archive.load("code", root)
    (root / "code/train.py").chmod(0o755)
    after, _ = source_archive.load("code", root)
    assert before and after and before.sha256 != after.sha256


def test_files_that_git_ignores_are_left_out_and_new_ones_are_packed(tmp_path: Path) -> None:
    root = tree(tmp_path)
    (root / ".gitignore").write_text("*.log\n")
    (root / "code/.gitignore").write_text("/data/\n")
    git(root, "init")
    git(root, "add", "code/train.py")
    git(root, "commit", "-m", "first")
    (root / "code/run.log").write_text("noise\n")
    (root / "code/data").mkdir()
    (root / "code/data/x").write_text("x\n")
    found, issues = source_archive.load("code", root)
    assert not issues and found
    assert names(found.archive) == [".gitignore", "lib/b.py", "train.py"]
    (root / "code/train.py").unlink()
    again, _ = source_archive.load("code", root)
    assert again and "train.py" not in names(again.archive)


def parts(folder: Path, stream: bytes) -> str:
    """Write an archive in two parts; return its hash."""
    folder.mkdir()
    packed = gzip.compress(stream)
    for index, piece in enumerate((packed[:100], packed[100:])):
        (folder / PART.format(index)).write_bytes(piece)
    return hashlib.sha256(stream).hexdigest()


def stream(*members: tarfile.TarInfo) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for member in members:
            tar.addfile(member)
    return made.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname = kind, link
    return found


def test_a_changed_archive_is_not_unpacked(tmp_path: Path) -> None:
    parts(tmp_path / "parts", stream(member("train.py")))
    with pytest.raises(SourceError, match="SHA-256"):
        unpack(tmp_path / "parts", "0" * 64, tmp_path / "into")
    assert not (tmp_path / "into").exists()
    with pytest.raises(SourceError, match="no archive"):
        unpack(tmp_path, "0" * 64, tmp_path / "into")


@pytest.mark.parametrize(
    "bad",
    [
        member("../outside"),
        member("/etc/outside"),
        member("link", tarfile.SYMTYPE, "/etc/passwd"),
        member("a/link", tarfile.SYMTYPE, "../../outside"),
        member("hard", tarfile.LNKTYPE, "/etc/passwd"),
        member("device", tarfile.CHRTYPE),
    ],
    ids=lambda one: one.name,
)
def test_nothing_is_written_outside_of_the_folder(tmp_path: Path, bad: tarfile.TarInfo) -> None:
    sha256 = parts(tmp_path / "parts", stream(member("first"), bad))
    with pytest.raises(SourceError, match="leaves its folder"):
        unpack(tmp_path / "parts", sha256, tmp_path / "place/into")
    assert list((tmp_path / "place").iterdir()) == []


def test_a_container_that_restarts_replaces_what_the_former_one_unpacked(tmp_path: Path) -> None:
    sha256 = parts(
        tmp_path / "parts", stream(member("first"), member("l", tarfile.SYMTYPE, "first"))
    )
    into = unpack(tmp_path / "parts", sha256, tmp_path / "into")
    (into / "stale").write_text("")
    unpack(tmp_path / "parts", sha256, into)
    assert sorted(path.name for path in into.iterdir()) == ["first", "l"]


def test_an_archive_that_expands_without_end_is_refused(tmp_path: Path) -> None:
    sha256 = parts(tmp_path / "parts", bytes(40 * 2**20))
    with pytest.raises(SourceError, match="larger than"):
        unpack(tmp_path / "parts", sha256, tmp_path / "into")


def test_the_command_of_workers_ends_with_78_without_a_program(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trainyard.source", "--", "true"], capture_output=True, text=True
    )
    assert done.returncode == 78
    assert len(done.stderr.splitlines()) == 1
