"""A joining group that has the state: what it does when it no longer receives updates."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.unit.trainer.checkpoints import progress_of
from tests.waiting import until
from training.trainer.elastic import ranks as group_ranks
from training.trainer.elastic.entrance import Entrance, Entry
from training.trainer.elastic.exchange import STEP, Note
from training.trainer.elastic.links import Listener, new_id
from training.trainer.elastic.ranks import GroupRanks, RankLost
from training.trainer.elastic.transfer import AppliedStep, CopyMemory, Donor
from training.trainer.elastic.views import Member, View, ViewLog

DEADLINE_S = 30.0
LONG_S = 2 * DEADLINE_S
PROGRESS = progress_of(3)


class SeenViews(ViewLog):
    """A log that knows which views were read as the newest."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__(run_dir)
        self.seen = 0

    def newest(self) -> View | None:
        """Return the newest view."""
        found = super().newest()
        self.seen = found.number if found else 0
        return found


class State:
    """Stands in for Computation: what a rank of a joining group fills and updates."""

    def __init__(self, patience_s: float) -> None:
        blocks = SimpleNamespace(compile=False)
        config = SimpleNamespace(collective_timeout_s=patience_s, blocks=blocks)
        self.run = SimpleNamespace(config=config, progress=PROGRESS)
        self.tensors = {"model": {"a": torch.zeros(4)}}
        self.length = 5
        self.holds_state = False
        self.applied: list[int] = []

    def warm_up(self) -> None:
        """Do nothing."""

    def apply(self, update: AppliedStep) -> None:
        """Count the step."""
        self.applied.append(update.note.step)
        self.run.progress = SimpleNamespace(step=update.note.step)


@dataclass
class Run:
    """Members that only listen, and one group that joins them, in one process."""

    path: Path
    made: list[Any] = field(default_factory=list)
    """What has to be closed."""
    links: list[socket.socket] = field(default_factory=list)
    """Between the ranks of a group."""
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2))
    notice: threading.Event = field(default_factory=threading.Event)

    def listeners(self, silent_after_s: float, ranks: int = 1) -> list[Listener]:
        """Return the ranks of a group."""
        found = [
            Listener(SeenViews(self.path), "127.0.0.1", silent_after_s, rank)
            for rank in range(ranks)
        ]
        member = Member(new_id(), tuple(one.address for one in found))
        for one in found:
            one.member = member
            self.made.append(one)
        return found

    def record(self, number: int, *groups: list[Listener], ready: tuple[str, ...] = ()) -> None:
        """Record a view of these groups; its leader renews the lease."""
        members = tuple(group[0].member for group in groups)
        view = View(number=number, members=members, formed=True, reason="test", ready=ready)
        ViewLog(self.path).create(view)
        for listener in (one for group in groups for one in group):
            listener.adopt(view)

    def join(
        self, silent_after_s: float, patience_s: float, ranks: int = 1
    ) -> tuple[list[Listener], list[Future[Entry | None]], list[State]]:
        """Have a group enter the run."""
        listeners = self.listeners(silent_after_s, ranks)
        states = [State(patience_s) for _ in listeners]
        parts = [GroupRanks()]
        if ranks == 2:
            self.links += socket.socketpair()
            parts = [GroupRanks(0, {1: self.links[0]}), GroupRanks(1, {0: self.links[1]})]
        futures = [
            self.pool.submit(self._entrance(listener, part, state, listeners).enter)
            for listener, part, state in zip(listeners, parts, states, strict=True)
        ]
        return listeners, futures, states

    def _entrance(
        self, listener: Listener, part: GroupRanks, state: State, group: list[Listener]
    ) -> Entrance:
        notice: Any = SimpleNamespace(is_set=self.notice.is_set)
        computation: Any = state
        return Entrance(
            log=listener.log,
            listener=listener,
            ranks=part,
            computation=computation,
            notice=notice,
            about={},
            addresses=tuple(one.address for one in group),
        )

    def feed(self, sender: Listener) -> Donor:
        """Send the state to the caller, as the member's training does."""
        until(lambda: sender.joins, "the caller", DEADLINE_S)
        connection, peer = sender.joins.pop()
        connection.settimeout(DEADLINE_S)
        tensors, memory = {"model": {"a": torch.ones(4)}}, CopyMemory()
        memory.prepare(tensors)
        until(lambda: memory.ready, "the memory", DEADLINE_S)
        donor = Donor(connection, peer, PROGRESS, tensors, {}, memory)
        self.made.append(donor)
        until(lambda: donor.acknowledged == 3, "the state", DEADLINE_S)
        return donor


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """A run without members yet."""
    made = Run(tmp_path)
    yield made
    made.notice.set()
    for link in made.links:  # a thread that waits does not notice that a socket is closed
        link.shutdown(socket.SHUT_RDWR)
    for one in reversed(made.made):
        one.close()
    made.pool.shutdown()
    for link in made.links:
        link.close()


def update(step: int) -> AppliedStep:
    return AppliedStep(Note(kind=STEP, view=1, step=step), torch.zeros(5))


def test_a_spare_whose_sender_vanished_begins_again_with_another_member(run: Run) -> None:
    (sender,), (other,) = run.listeners(LONG_S), run.listeners(LONG_S)
    run.record(1, [sender])
    (spare,), _, _ = run.join(silent_after_s=0.2, patience_s=LONG_S)
    run.feed(sender)
    # A node without power closes no connection.
    run.record(2, [other], ready=(spare.member.id,))
    until(lambda: other.joins, "the spare", DEADLINE_S)


def test_a_spare_that_no_view_names_begins_again_at_once(run: Run) -> None:
    (sender,), (other,) = run.listeners(LONG_S), run.listeners(LONG_S)
    run.record(1, [sender])
    (spare,), _, _ = run.join(silent_after_s=LONG_S, patience_s=LONG_S)
    donor = run.feed(sender)
    run.record(2, [other])
    log: Any = spare.log
    until(lambda: log.seen == 2, "a look at the view", DEADLINE_S)
    donor.close()
    until(lambda: other.joins, "the spare", DEADLINE_S)


def test_a_spare_that_waits_for_a_view_obeys_a_notice(run: Run) -> None:
    (sender,) = run.listeners(LONG_S)
    run.record(1, [sender])
    _, (entered,), _ = run.join(silent_after_s=LONG_S, patience_s=LONG_S)
    run.feed(sender).close()
    run.notice.set()
    assert entered.result(DEADLINE_S) is None


def test_a_spare_that_waits_takes_part_in_a_later_view(run: Run) -> None:
    (sender,), (other,) = run.listeners(LONG_S), run.listeners(LONG_S)
    run.record(1, [sender])
    (spare,), (entered,), _ = run.join(silent_after_s=LONG_S, patience_s=LONG_S)
    donor = run.feed(sender)
    run.record(2, [other], ready=(spare.member.id,))
    log: Any = spare.log
    until(lambda: log.seen == 2, "a look at the view", DEADLINE_S)
    donor.close()
    run.record(3, [other], [spare])
    entry = entered.result(DEADLINE_S)
    assert entry and (entry.view.number, entry.started) == (3, False)


def test_a_group_ends_if_only_some_of_its_ranks_are_fed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_ranks, "_SLACK_S", 0.0)
    senders = run.listeners(LONG_S, ranks=2)
    run.record(1, senders)
    _, entered, states = run.join(silent_after_s=LONG_S, patience_s=2.0, ranks=2)
    donors = fed_at_once(run, senders)
    for donor in donors:
        donor.offer(update(4))
    until(lambda: [state.applied for state in states] == [[4], [4]], "a step", DEADLINE_S)
    donors[1].offer(update(5))
    with pytest.raises(RankLost, match="rank 0 of this group does not answer"):
        entered[1].result(DEADLINE_S)


def fed_at_once(run: Run, senders: list[Listener]) -> list[Donor]:
    """Send the state to both ranks of the group."""
    with ThreadPoolExecutor(len(senders)) as pool:
        return list(pool.map(run.feed, senders))
