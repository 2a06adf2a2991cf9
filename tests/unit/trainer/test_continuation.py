"""A run that starts with the checkpoints of another one."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from trainer.preflight import continue_from
from trainyard.store.interface import folder_name
from trainyard.store.manifest import MANIFEST_FILE


def checkpoint(run: Path, step: int) -> Path:
    folder = run / "checkpoints" / folder_name(step)
    folder.mkdir(parents=True)
    for name in (MANIFEST_FILE, "rank-0.safetensors"):
        (folder / name).write_text(f"{name} of {step}")
    return folder


def steps(run: Path) -> list[str]:
    return sorted(one.name for one in (run / "checkpoints").iterdir())


def test_a_run_that_has_checkpoints_keeps_them(tmp_path: Path) -> None:
    checkpoint(tmp_path / "first", 20)
    own = checkpoint(tmp_path / "second", 7)
    continue_from(tmp_path / "first", tmp_path / "second")
    assert steps(tmp_path / "second") == [own.name]


def test_files_are_copied_where_they_cannot_be_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: str) -> None:
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr(os, "link", refused)
    old = checkpoint(tmp_path / "first", 10)
    continue_from(tmp_path / "first", tmp_path / "second")
    assert steps(tmp_path / "second") == [old.name]
    assert old.joinpath(MANIFEST_FILE).stat().st_nlink == 1


def test_a_checkpoint_that_is_deleted_meanwhile_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = checkpoint(tmp_path / "first", 20)
    checkpoint(tmp_path / "first", 10)
    link = os.link

    def deleting(source: str, target: str) -> None:
        if Path(source).parent.name == folder_name(10):
            shutil.rmtree(Path(source).parent)
        link(source, target)

    monkeypatch.setattr(os, "link", deleting)
    continue_from(tmp_path / "first", tmp_path / "second")
    assert steps(tmp_path / "second") == [newest.name]
