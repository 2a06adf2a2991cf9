"""Decisions on a shared folder whose client remembers listings, and files that do not exist, as NFS does."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from trainyard import gang_notice, shared_files
from trainyard.elastic.views import View, Views
from trainyard.gang_notice import GangNotice
from trainyard.store.fence import PosixFence, newest_attempt
from trainyard.store.interface import StaleAttempt
from trainyard.store.posix import PosixStore

Remember = Callable[[], None]


@pytest.fixture
def remember(monkeypatch: pytest.MonkeyPatch) -> Remember:
    """From the call on, this host sees a folder as it was, until it changes the folder itself."""
    listings: dict[str, list[str]] = {}
    missing: set[Path] = set()
    listdir, read_text, refresh = os.listdir, Path.read_text, shared_files.refresh

    def listed(folder: str | os.PathLike[str]) -> list[str]:
        return listings.setdefault(str(folder), listdir(folder))

    def read(file: Path, *arguments: str, **options: str) -> str:
        if file in missing or not file.exists():
            missing.add(file)
            raise FileNotFoundError(file)
        return read_text(file, *arguments, **options)

    def refreshed(folder: Path) -> None:
        listings.pop(str(folder), None)
        missing.difference_update([file for file in missing if file.parent == folder])
        refresh(folder)

    def start() -> None:
        monkeypatch.setattr(os, "listdir", listed)
        monkeypatch.setattr(Path, "read_text", read)
        monkeypatch.setattr(shared_files, "refresh", refreshed)

    return start


def test_an_attempt_that_was_replaced_publishes_nothing(tmp_path: Path, remember: Remember) -> None:
    own = PosixFence.claim(tmp_path)
    remember()
    own.check()
    (tmp_path / "attempts" / "attempt-00000002.json").write_text("{}")
    with pytest.raises(StaleAttempt, match="was replaced by attempt 2"):
        own.check()
    assert newest_attempt(tmp_path) == 2


def test_the_newest_checkpoint_is_found(tmp_path: Path, remember: Remember) -> None:
    store = PosixStore(tmp_path)
    remember()
    assert store.steps() == []
    (tmp_path / "step-00000007").mkdir()
    (tmp_path / "step-00000007" / "manifest.json").write_text("{}")
    assert store.steps() == [7]


def test_the_newest_view_is_found(tmp_path: Path, remember: Remember) -> None:
    views = Views(tmp_path, 0.0)
    remember()
    assert views.newest() is None
    view = View(number=1, members=(), reason="", settings={}, formed=True)
    assert Views(tmp_path, 0.0).create(view) == views.newest() == view


def test_another_node_s_notice_arrives(
    tmp_path: Path, remember: Remember, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gang_notice, "_POLL_S", 0.0)
    own, other = (GangNotice(tmp_path / "notice.json", "1", started=0.0) for _ in range(2))
    remember()
    assert own.received() is None
    other.send()
    assert own.received() is None
    monkeypatch.setattr(gang_notice, "_REFRESH_S", 0.0)
    assert own.received() == json.loads((tmp_path / "notice.json").read_text())["host"]
