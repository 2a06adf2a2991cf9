"""Members of a view without training: connections, the lease of the run, and views that cannot be written."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until
from training.trainer.elastic import callers, lease
from training.trainer.elastic.lease import LeaseWatch
from training.trainer.elastic.links import JOIN, Listener, MemberLost, new_id
from training.trainer.elastic.mesh import Mesh
from training.trainer.elastic.ranks import GroupRanks
from training.trainer.elastic.views import Member, View, ViewLog

DEADLINE_S = 120.0
SILENT_S = 2.0


class Pair:
    """Two members of a view in one process; the first leads."""

    def __init__(self, run_dir: Path, silent_after_s: float = SILENT_S) -> None:
        self.log = ViewLog(run_dir)
        logs = [ViewLog(run_dir), ViewLog(run_dir)]
        self.listeners = [Listener(log, "127.0.0.1", silent_after_s) for log in logs]
        for listener in self.listeners:
            listener.member = Member(new_id(), (listener.address,))
        self.view = self.log.create(view_of(1, *self.listeners))
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(self._connect, self.listeners))

    def _connect(self, listener: Listener) -> None:
        listener.connect(self.view, DEADLINE_S, lambda: None)

    def close(self) -> None:
        """End both."""
        for listener in self.listeners:
            listener.close()


def view_of(number: int, *listeners: Listener) -> View:
    """Return a view of these members."""
    members = tuple(listener.member for listener in listeners)
    return View(number=number, members=members, formed=True, reason="test")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """Two connected members."""
    made = Pair(tmp_path)
    yield made
    made.close()


def test_callers_that_say_nothing_do_not_delay_others(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers, "_HELLO_S", 2 * DEADLINE_S)
    leader, other = pair.listeners
    silent = [socket.create_connection(leader.address) for _ in range(30)]
    newcomer = other.dial(leader.member, 0, JOIN, DEADLINE_S)
    try:
        until(lambda: leader.joins, "the caller with a hello", DEADLINE_S)
        assert [peer for _, peer in leader.joins] == [other.member.id]
        assert other.lost() == set()
        for connection in silent:
            with pytest.raises(BlockingIOError):  # it is still waited for
                connection.recv(1, socket.MSG_DONTWAIT)
    finally:
        for connection in (*silent, newcomer):
            connection.close()


def test_a_caller_that_says_nothing_is_dropped(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "_HELLO_S", 0.0)
    with socket.create_connection(pair.listeners[0].address, timeout=DEADLINE_S) as silent:
        assert silent.recv(1) == b""


def test_a_stalled_lease_does_not_silence_the_leader(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, other = pair.listeners
    stalled, over = threading.Event(), threading.Event()

    def stall() -> None:
        stalled.set()
        over.wait(DEADLINE_S)

    monkeypatch.setattr(leader.log, "renew_lease", stall)
    try:
        assert stalled.wait(DEADLINE_S)
        begun = time.monotonic()
        until(
            lambda: other.lost() or time.monotonic() - begun > 2 * SILENT_S,
            "heartbeats",
            DEADLINE_S,
        )
        assert other.lost() == set()
        assert leader.lost() == set()
    finally:
        over.set()


def test_the_lease_is_renewed_by_the_leader_alone(pair: Pair) -> None:
    first = pair.log.lease()
    until(lambda: pair.log.lease() != first, "a renewal", DEADLINE_S)
    leader, other = pair.listeners
    for listener in pair.listeners:
        listener.adopt(view_of(2, other, leader))
    leader.close()
    second = pair.log.lease()
    until(lambda: pair.log.lease() != second, "a renewal by the next leader", DEADLINE_S)


def test_the_only_member_of_a_view_notices_that_another_group_took_over(tmp_path: Path) -> None:
    log = ViewLog(tmp_path)
    listener = Listener(log, "127.0.0.1", SILENT_S)
    try:
        listener.member = Member(new_id(), (listener.address,))
        view = log.create(view_of(1, listener))
        mesh = Mesh(listener, view, listener.connect(view, 1.0, lambda: None), GroupRanks())
        mesh.swap({}, {}, 1.0)
        log.create(View(number=2, members=(), formed=False, reason="test"))

        def swap_fails() -> bool:
            try:
                mesh.swap({}, {}, 1.0)
            except MemberLost:
                return True
            return False

        until(swap_fails, "the end of the view", DEADLINE_S)
    finally:
        listener.close()


def test_a_lone_member_that_was_stopped_looks_before_its_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = ViewLog(tmp_path)
    listener = Listener(log, "127.0.0.1", SILENT_S)
    over = threading.Event()
    try:
        listener.member = Member(new_id(), (listener.address,))
        view = log.create(view_of(1, listener))
        mesh = Mesh(listener, view, listener.connect(view, 1.0, lambda: None), GroupRanks())
        monkeypatch.setattr(log, "renew_lease", lambda: over.wait(DEADLINE_S))
        monkeypatch.setattr(lease, "_OLD_S", -1.0)  # as after a stop
        mesh.swap({}, {}, 1.0)
        log.create(View(number=2, members=(), formed=False, reason="test"))
        with pytest.raises(MemberLost):
            mesh.swap({}, {}, 1.0)
    finally:
        over.set()
        listener.close()


class Clock:
    """Stands in for the module `time`."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        """Return the time that the test has set."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time of newcomers."""
    made = Clock()
    monkeypatch.setattr(lease, "time", made)
    return made


@pytest.mark.parametrize(("refused", "patience_s"), [(True, 2.0), (False, 7.0)])
def test_a_run_is_taken_over_once_its_lease_was_not_renewed(
    tmp_path: Path, clock: Clock, refused: bool, patience_s: float
) -> None:
    log = ViewLog(tmp_path)
    watch = LeaseWatch(log, SILENT_S)
    for _ in range(40):
        log.renew_lease()
        clock.now += 0.5
        assert not watch.expired(1, refused=refused)
    begun = clock.now
    while not watch.expired(1, refused=refused):
        clock.now += 0.5
    assert patience_s < clock.now - begun <= patience_s + 0.5
    assert not watch.expired(2, refused=refused), "a new view is a sign of life, too"


def test_a_newcomer_that_was_stopped_itself_does_not_count_that_time(
    tmp_path: Path, clock: Clock
) -> None:
    watch = LeaseWatch(ViewLog(tmp_path), SILENT_S)
    for refused in (True, False):
        assert not watch.expired(int(refused), refused=refused)
        clock.now += 3600.0
        assert not watch.expired(int(refused), refused=refused)


def failing(monkeypatch: pytest.MonkeyPatch, number: int, times: int) -> None:
    """Have links fail so many times with an error of the file system."""
    plain, left = os.link, [times]

    def link(*arguments: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise OSError(number, os.strerror(number))
        plain(*arguments)

    monkeypatch.setattr(os, "link", link)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.ESTALE])
def test_a_view_that_cannot_be_written_is_tried_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: int,
) -> None:
    failing(monkeypatch, number, times=2)
    log, view = ViewLog(tmp_path, DEADLINE_S), View(number=3, members=(), formed=False, reason="")
    waits: list[int] = []
    assert log.create(view, lambda: waits.append(1)) == view
    assert len(waits) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        f"{tmp_path}/groups/view-00000003.json: not written: {os.strerror(number)}; the run directory must be "
        "writable; tried again for 120 s"
    )
    assert list((tmp_path / "groups").glob(".*")) == []


def test_a_view_that_is_never_written_ends_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, errno.ENOSPC, times=-1)
    log = ViewLog(tmp_path, 0.3)
    with pytest.raises(OSError, match="not written for 0 s: No space left") as found:
        log.create(View(number=3, members=(), formed=False, reason=""))
    assert found.value.filename == f"{tmp_path}/groups/view-00000003.json"
    assert list((tmp_path / "groups").glob(".*")) == []
