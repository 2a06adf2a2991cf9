"""A notice is seen whatever its kind, once, and does not outlive the stop that it caused."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import waiting
from trainyard.notice import Notice


@pytest.fixture(autouse=True)
def _handlers_are_put_back() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)


def listening(run_dir: Path) -> Notice:
    notice = Notice(run_dir)
    notice.listen(leave=lambda: None)
    notice.work_started()
    return notice


def until(condition: Callable[[], object]) -> None:
    """Signals are read by a thread: wait until it has."""
    waiting.until(condition, "the thread", 10, every_s=0.001)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_a_notice(number: signal.Signals, tmp_path: Path) -> None:
    notice = listening(tmp_path)
    assert not notice.is_set()
    os.kill(os.getpid(), number)
    until(notice.is_set)
    assert notice.source == number.name
    assert 0 < notice.seconds_left(60) <= 60


def test_ctrl_c_that_comes_twice_at_once_is_one_notice(tmp_path: Path) -> None:
    notice = listening(tmp_path)
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)
    until(notice.is_set)
    assert notice.source == "SIGINT"


def test_before_work_begins_a_signal_leaves_at_once(tmp_path: Path) -> None:
    left: list[bool] = []
    notice = Notice(tmp_path)
    notice.listen(leave=lambda: left.append(True))
    assert not notice.is_set()
    os.kill(os.getpid(), signal.SIGTERM)
    until(lambda: left)
    assert left == [True]


def test_a_node_s_notice_file_is_a_notice_for_its_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "reclaimed"
    monkeypatch.setenv("TRAINYARD_NOTICE_FILE", str(file))
    file.touch()
    notice = Notice(tmp_path / "run")
    assert notice.is_set()
    assert notice.source == str(file)
    notice.acknowledged()
    assert file.exists()  # the node is still being reclaimed


def test_the_run_s_notice_file_is_seen_by_the_rank_that_watches_and_then_removed(
    tmp_path: Path,
) -> None:
    (tmp_path / "notice").touch()
    blind, watching = Notice(tmp_path), Notice(tmp_path)
    watching.watch_run_dir()
    assert not blind.is_set()
    assert watching.is_set()
    watching.acknowledged()
    assert not (tmp_path / "notice").exists()


def test_without_a_notice_of_its_own_a_rank_has_the_whole_budget(tmp_path: Path) -> None:
    assert Notice(tmp_path).seconds_left(45) == 45
