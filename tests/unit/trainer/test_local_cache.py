"""Datasets come to a local disk whole, once, and never trusted unseen."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.trainer.datasets import dataset
from trainer.data import local_cache
from trainer.data.local_cache import cache_version, latest_version
from trainer.prepare.dataset import LATEST_FILE, DatasetError, verify_files

TRAIN = [list(range(0, 40)), list(range(50, 90))]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were read from a source, in order."""
    names: list[str] = []
    chunks = local_cache._chunks

    def counted(source: str, name: str) -> Iterator[bytes]:
        if name != LATEST_FILE:
            names.append(Path(name).name)
        return chunks(source, name)

    monkeypatch.setattr(local_cache, "_chunks", counted)
    return names


@pytest.fixture
def source(tmp_path: Path) -> Path:
    dataset(tmp_path / "source", TRAIN)
    return tmp_path / "source"


def version_of(source: Path) -> str:
    return latest_version(str(source))


def test_a_staged_version_is_the_same_bytes_and_is_copied_once(
    source: Path, tmp_path: Path, read: list[str]
) -> None:
    version = version_of(source)
    opened = cache_version(str(source), version, tmp_path / "nvme", full_check=True)
    assert opened.folder == tmp_path / "nvme" / version
    assert verify_files(opened.folder, opened.index, hashes=True) == []
    names = {file.name for file in (source / version).iterdir()}
    assert {file.name for file in opened.folder.iterdir()} == names
    read.clear()
    cache_version(str(source), version, tmp_path / "nvme", full_check=True)
    assert read == []


@pytest.mark.parametrize("damage", ["missing", "flipped", "short"])
def test_a_bad_shard_is_named_where_it_came_from_and_is_not_staged(
    damage: str, source: Path, tmp_path: Path
) -> None:
    version = version_of(source)
    shard = source / version / "shard-train-00001.bin"
    content = bytearray(shard.read_bytes())
    content[3] ^= 1
    shard.unlink()
    if damage != "missing":
        shard.write_bytes(content if damage == "flipped" else content[:-2])
    with pytest.raises(DatasetError, match=r"shard-train-00001\.bin: ") as caught:
        cache_version(str(source), version, tmp_path / "nvme", full_check=True)
    assert str(shard) in str(caught.value) and len(str(caught.value).splitlines()) == 1
    assert not (tmp_path / "nvme" / version).exists()


def test_a_staged_file_that_has_gone_bad_is_fetched_again(source: Path, tmp_path: Path) -> None:
    version = version_of(source)
    folder = cache_version(str(source), version, tmp_path / "nvme", full_check=True).folder
    (folder / "shard-train-00000.bin").write_bytes(bytes(80))
    opened = cache_version(str(source), version, tmp_path / "nvme", full_check=True)
    assert verify_files(folder, opened.index, hashes=True) == []


def test_after_a_crash_what_was_copied_is_checked_and_kept(
    source: Path, tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    version = version_of(source)
    copy = local_cache._copy_file

    def crash(*arguments: object) -> None:
        if len(read) == 3:  # the index and two files are there
            raise KeyboardInterrupt
        copy(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(local_cache, "_copy_file", crash)
        cache_version(str(source), version, tmp_path / "nvme", full_check=True)
    kept = tmp_path / "nvme" / f".{version}.copying" / "files" / read[1]
    kept.write_bytes(kept.read_bytes()[::-1])  # one of them never reached the disk
    damaged, whole = read[1], read[2]
    read.clear()
    opened = cache_version(str(source), version, tmp_path / "nvme", full_check=True)
    assert damaged in read and whole not in read
    assert verify_files(opened.folder, opened.index, hashes=True) == []


def test_too_little_room_is_told_before_anything_is_copied(
    source: Path, tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    version = version_of(source)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100))
    with pytest.raises(DatasetError, match=r"GB to write, 0\.0 GB free; remove other versions"):
        cache_version(str(source), version, tmp_path / "nvme", full_check=True)
    assert read == ["index.json"]


def test_ranks_of_a_node_copy_once_together(source: Path, tmp_path: Path, read: list[str]) -> None:
    version = version_of(source)
    ranks = [
        threading.Thread(
            target=cache_version, args=(str(source), version, tmp_path / "nvme"), kwargs=FULL
        )
        for _ in range(4)
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert read.count("shard-train-00000.bin") == 1


FULL = {"full_check": True}
WAITS = """
import sys
from pathlib import Path
from trainer.data import local_cache
def hang(*_):
    print("copying", flush=True)
    sys.stdin.read()
local_cache._copy_file = hang
source, version, nvme = sys.argv[1:]
local_cache.cache_version(source, version, Path(nvme), full_check=True)
"""


def test_a_copier_that_was_killed_does_not_block_the_next(source: Path, tmp_path: Path) -> None:
    version, nvme = version_of(source), tmp_path / "nvme"
    command = [sys.executable, "-c", WAITS, str(source), version, str(nvme)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as killed:  # type: ignore[call-overload]
        assert killed.stdout.readline() == b"copying\n"
        os.kill(killed.pid, signal.SIGKILL)
    opened = cache_version(str(source), version, nvme, full_check=True)
    assert verify_files(opened.folder, opened.index, hashes=True) == []
