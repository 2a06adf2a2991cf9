"""Updates that a group missed: which member sends them, and which group is excluded if no member has them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from training.trainer.elastic.computation import Computation
from training.trainer.elastic.exchange import STEP, Exchange, Note
from training.trainer.elastic.group import Group
from training.trainer.elastic.links import Listener, MemberLost, new_id
from training.trainer.elastic.membership import Excluded
from training.trainer.elastic.mesh import Mesh
from training.trainer.elastic.ranks import GroupRanks
from training.trainer.elastic.transfer import AppliedStep
from training.trainer.elastic.views import Member, View, ViewLog

DEADLINE_S = 60.0
LENGTH = 5


def update(step: int) -> AppliedStep:
    return AppliedStep(Note(kind=STEP, view=1, step=step), torch.full((LENGTH,), float(step)))


class Follower(Computation):
    """A computation without a model: it only counts updates."""

    def __post_init__(self) -> None:
        self.length = LENGTH

    def apply(self, applied: AppliedStep) -> None:
        """Keep an update that directly follows."""
        assert applied.note.step == self.run.progress.step + 1
        self.applied[applied.note.step] = applied
        progress: Any = SimpleNamespace(step=applied.note.step, evaluated_step=0)
        self.run.progress = progress


class NoAgenda:
    """The ranks of a group have nothing to decide."""

    def report(self) -> dict[str, Any]:
        """See Agenda."""
        return {}

    def decide(self, reports: list[dict[str, Any]]) -> dict[str, Any]:
        """See Agenda."""
        return {}


@pytest.fixture
def listeners(tmp_path: Path) -> Iterator[list[Listener]]:
    """Three groups that can be members."""
    found = [Listener(ViewLog(tmp_path), "127.0.0.1", DEADLINE_S) for _ in range(3)]
    for listener in found:
        listener.member = Member(new_id(), (listener.address,))
    yield found
    for listener in found:
        listener.close()


def group_at(listener: Listener, view: View, step: int, kept: tuple[int, ...]) -> Group:
    """Return a group after this step that has kept these updates, connected with the others."""
    progress = SimpleNamespace(step=step, evaluated_step=0, evaluation_loss=None)
    run: Any = SimpleNamespace(progress=progress, notice=SimpleNamespace(is_set=lambda: False))
    order: Any = None
    computation = Follower(run=run, order=order, applied={one: update(one) for one in kept})
    ranks = GroupRanks()
    links = listener.connect(view, DEADLINE_S, lambda: None)
    exchange = Exchange(
        Mesh(listener, view, links, ranks), ranks, listener.member.id, 4, LENGTH, NoAgenda()
    )
    changes: Any = SimpleNamespace(
        own_id=listener.member.id, view=view, exchange=exchange, patience_s=DEADLINE_S
    )
    nothing: Any = None
    return Group(
        computation=computation,
        changes=changes,
        entrance=nothing,
        donors=nothing,
        leadership=nothing,
    )


def synchronize(
    listeners: list[Listener], states: list[tuple[int, tuple[int, ...]]]
) -> list[int | set[int | None] | None]:
    """Return what each group finds: its step, or the positions of the lost, or None if it is out."""
    members = tuple(listener.member for listener in listeners)
    view = View(number=1, members=members, formed=True, reason="test")

    def find(
        listener: Listener, state: tuple[int, tuple[int, ...]]
    ) -> int | set[int | None] | None:
        group = group_at(listener, view, *state)
        try:
            group._synchronize()
        except MemberLost as error:
            return {view.position(member) for member in error.lost}
        except Excluded:
            return None
        for step, applied in group.computation.applied.items():
            assert torch.equal(applied.share, update(step).share)
        return group.run.progress.step

    with ThreadPoolExecutor(len(listeners)) as pool:
        return list(pool.map(find, listeners, states))


def test_a_group_gets_both_updates_that_it_missed(listeners: list[Listener]) -> None:
    assert synchronize(listeners, [(6, (5, 6)), (6, (5, 6)), (4, (4,))]) == [6, 6, 6]


def test_the_member_that_has_kept_most_gives(listeners: list[Listener]) -> None:
    # The first has just got the state itself.
    assert synchronize(listeners, [(6, ()), (6, (5, 6)), (4, ())]) == [6, 6, 6]


def test_a_group_that_nobody_can_help_is_out_and_the_others_go_on(
    listeners: list[Listener],
) -> None:
    assert synchronize(listeners, [(6, (6,)), (6, (6,)), (4, (3, 4))]) == [{2}, {2}, None]


def test_a_step_that_fails_in_the_exchange_leaves_both_updates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Computation, "_sum_leaves", lambda *_: 0.0)
    network = SimpleNamespace(unwrapped=torch.nn.Linear(2, 2), copies=None, norm=None)
    run: Any = SimpleNamespace(
        network=network,
        world=SimpleNamespace(device=torch.device("cpu")),
        recorder=SimpleNamespace(enter=lambda *_: None),
        progress=SimpleNamespace(step=6),
    )
    order: Any = None
    computation = Computation(run=run, order=order)
    for step in (5, 6):
        share = computation.gradients.shares[step % 2]
        computation.applied[step] = AppliedStep(update(step).note, share.fill_(step))

    def fail(note: Note, out: torch.Tensor, timeout_s: float) -> None:
        out.fill_(-1.0)
        raise MemberLost({"other"})

    exchange: Any = SimpleNamespace(reduce=fail, leaves=range(1))
    with pytest.raises(MemberLost):
        computation.step(exchange, Note(kind=STEP, view=1, step=7), 1.0)
    assert computation.kept == 2
    assert [float(computation.applied[step].share[0]) for step in (5, 6)] == [5.0, 6.0]
