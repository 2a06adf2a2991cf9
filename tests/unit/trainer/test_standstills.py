"""Which rank is named when a gang stands still, by what its ranks report."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from training.trainer.flight import judge
from training.trainer.flight.collectives import Collective, departs
from training.trainer.flight.hangs import Suspect, find, mismatched, usual_counts
from training.trainer.flight.reports import Report, Team, attempt_label
from training.trainer.flight.ring import Mark, Phase
from trainyard.culprits import HUNG, MISMATCHED, NO_RANK

STEP = (Phase.LOADER, Phase.PASSES, Phase.UPDATE, Phase.AGREE, Phase.BETWEEN)


def marks(steps: int, skipped: tuple[int, Phase] | None = None) -> tuple[Mark, ...]:
    """Marks of steps with two gradient buckets and one exchange; one collective may be skipped."""
    numbers, issued, found = count(1), 0, list[Mark]()
    for step in range(1, steps + 1):
        for phase in STEP:
            left = {Phase.UPDATE: 2, Phase.BETWEEN: 1}.get(phase, 0)
            issued += left - (skipped == (step, phase))
            found.append(Mark(next(numbers), 0, step, phase, issued))
    return tuple(found)


def issued(mark: Mark) -> int:
    return mark.issued


def report(rank: int, phase: Phase, issued: int, *, waiting: bool | None = None) -> Report:
    """A rank that has been in a phase for 25 s."""
    return Report(
        rank=rank,
        host=f"host-{rank}",
        node=f"node-{rank}",
        pod="",
        beat=3,
        step=40,
        phase=phase,
        seconds=25.0,
        allowed=20.0,
        issued=issued,
        stuck=True,
        frames=("loop.py:9 train", f"code.py:{rank} work"),
        collectives=("gloo:all_reduce [4] Double",) if waiting else (),
        waiting=waiting,
    )


def named(*reports: Report, silent: dict[int, str] | None = None) -> Suspect | None:
    found = {one.rank: one for one in reports}
    return find(found, silent or {}, len(reports) + len(silent or {}))


def test_the_rank_that_has_issued_fewer_collectives_is_named_with_its_frame() -> None:
    found = named(
        report(0, Phase.PASSES, 82, waiting=True),
        report(1, Phase.LOADER, 80, waiting=False),
        report(2, Phase.PASSES, 82, waiting=True),
    )
    assert found is not None
    assert (found.symptom, found.rank) == (HUNG, 1)
    assert found.what == "does not leave the loader for 25 s"
    assert found.evidence[0] == "its main thread: code.py:1 work"
    assert "which rank 1 has not issued" in found.evidence[1]


def test_of_equally_far_ranks_the_one_that_waits_for_none_is_named() -> None:
    found = named(
        report(0, Phase.AGREE, 82, waiting=True), report(1, Phase.UPDATE, 82, waiting=False)
    )
    assert found is not None and found.rank == 1


def test_a_rank_may_take_three_times_as_long_as_usual() -> None:
    slow = replace(report(1, Phase.SAVE, 80, waiting=False), allowed=60.0)
    waiting = report(0, Phase.AGREE, 82, waiting=True)
    assert named(waiting, slow) is None
    late = named(waiting, replace(slow, seconds=61.0))
    assert late is not None and late.rank == 1


def test_a_rank_that_does_not_answer_is_named_before_others_that_are_behind() -> None:
    seen = replace(report(0, Phase.PASSES, 82, waiting=True), silent={2: "its process is stopped"})
    behind = report(1, Phase.LOADER, 80, waiting=False)
    found = named(seen, behind, silent={2: "its last report: the loader of step 39"})
    assert found is not None
    assert (found.symptom, found.rank, found.what) == (HUNG, 2, "does not answer")
    assert found.evidence[:2] == (
        "its process is stopped",
        "its last report: the loader of step 39",
    )


@pytest.mark.parametrize(("kind", "symptom"), [("sum", HUNG), ("norm", MISMATCHED)])
def test_a_rank_that_is_behind_with_another_kind_of_collective_skipped_one(
    kind: str, symptom: str
) -> None:
    """With the same kind it may still wait for its part of that one, while others have theirs."""
    usual = {"number 80 of group 0": "gather", "number 81 of group 0": "sum"}
    ahead = [
        replace(
            report(rank, Phase.UPDATE, 82, waiting=True),
            kinds=usual | {"number 82 of group 0": "norm"},
        )
        for rank in (0, 2)
    ]
    behind = report(1, Phase.UPDATE, 81, waiting=True)
    found = named(*ahead, replace(behind, kinds=usual | {"number 81 of group 0": kind}))
    assert found is not None
    assert (found.symptom, found.rank) == (symptom, 1)


def test_of_an_elastic_run_the_rank_that_is_behind_inside_its_group_is_named() -> None:
    def of(group: str, rank: int, phase: Phase, issued: int, inside: int) -> Report:
        return replace(report(rank, phase, issued, waiting=True), group=group, inside=inside)

    found = named(
        of("a", 0, Phase.AGREE, 41, 80),
        of("a", 1, Phase.AGREE, 41, 80),
        of("b", 2, Phase.UPDATE, 40, 161),
        of("b", 3, Phase.UPDATE, 40, 160),
    )
    assert found is not None and found.rank == 3


def test_of_equally_far_ranks_the_one_whose_collective_does_not_belong_there_is_named() -> None:
    usual = report(0, Phase.UPDATE, 82, waiting=True)
    found = named(usual, replace(report(1, Phase.UPDATE, 82, waiting=True), departs=True))
    assert found is not None
    assert (found.symptom, found.rank) == (MISMATCHED, 1)
    both = named(
        *(replace(report(r, Phase.UPDATE, 82, waiting=True), departs=True) for r in (0, 1))
    )
    assert both is not None and both.rank == NO_RANK


def collective(name: str) -> Collective:
    return Collective(
        number=1,
        group="",
        group_name="0",
        name=name,
        sizes=((4,),),
        dtypes=("Float",),
        complete=True,
    )


def test_a_collective_that_never_came_after_those_before_it_departs() -> None:
    steps = [collective(name) for name in ("scatter", "gather", "sum", "norm") * 5]
    assert not departs([*steps, collective("scatter")])
    assert departs([*steps, collective("norm")])
    assert not departs([*steps[:8], collective("norm")]), "seen too rarely to tell"
    assert not departs([])


def test_where_all_wait_in_the_same_collective_no_rank_is_named() -> None:
    found = named(*(report(rank, Phase.AGREE, 82, waiting=True) for rank in range(3)))
    assert found is not None
    assert (found.symptom, found.rank) == (HUNG, NO_RANK)
    assert "the network" in found.what


def test_a_rank_in_a_collective_of_its_own_is_named() -> None:
    found = named(
        report(0, Phase.AGREE, 82, waiting=True),
        report(1, Phase.UPDATE, 82, waiting=True),
        report(2, Phase.AGREE, 82, waiting=True),
    )
    assert found is not None
    assert (found.symptom, found.rank) == (MISMATCHED, 1)


def test_where_no_rank_leaves_the_loader_no_rank_is_named() -> None:
    found = named(*(report(rank, Phase.LOADER, 82, waiting=False) for rank in range(3)))
    assert found is not None and found.rank == NO_RANK
    assert "what they all use" in found.what


def test_a_rank_alone_is_named() -> None:
    found = named(report(0, Phase.LOADER, 0))
    assert found is not None and (found.symptom, found.rank) == (HUNG, 0)


@pytest.mark.parametrize("phase", [Phase.UPDATE, Phase.BETWEEN])
def test_the_rank_that_skipped_a_collective_is_named_though_others_ended_first(
    phase: Phase,
) -> None:
    good = replace(report(0, Phase.AGREE, 27), marks=marks(9))
    bad = replace(report(1, Phase.PASSES, 26), marks=marks(9, (9, phase)))
    found = mismatched({0: good, 1: bad})
    assert found is not None
    assert (found.symptom, found.rank) == (MISMATCHED, 1)
    assert found.what == "skipped a collective in step 9"


def inside(steps: int, each: int, skipped: tuple[int, Phase] | None = None) -> tuple[Mark, ...]:
    """Marks of an elastic run: one exchange per step, and so many collectives inside of the group."""
    plain, odd = marks(steps), marks(steps, skipped)
    return tuple(
        replace(mark, issued=mark.step, inside=other.issued + each * mark.step)
        for mark, other in zip(plain, odd, strict=True)
    )


def test_of_an_elastic_run_a_rank_that_skipped_a_collective_inside_its_group_is_named() -> None:
    ranks = [(0, "a", inside(9, 3)), (1, "a", inside(9, 3)), (2, "b", inside(9, 7))]
    skipping = inside(9, 7, (9, Phase.UPDATE))
    found = mismatched(
        {
            rank: replace(report(rank, Phase.UPDATE, 9), group=group, marks=seen)
            for rank, group, seen in (*ranks, (3, "b", skipping))
        }
    )
    assert found is not None
    assert (found.symptom, found.rank) == (MISMATCHED, 3)


def test_what_a_group_of_one_rank_does_inside_is_not_compared() -> None:
    alone = inside(9, 3, (9, Phase.UPDATE))
    reports = {
        rank: replace(report(rank, Phase.UPDATE, 9), group=str(rank), marks=seen)
        for rank, seen in enumerate((alone, inside(9, 3)))
    }
    assert mismatched(reports) is None


def test_a_difference_that_all_ranks_share_is_none() -> None:
    both = {
        r: replace(report(r, Phase.AGREE, 27), marks=marks(9, (9, Phase.UPDATE))) for r in (0, 1)
    }
    assert mismatched(both) is None


def test_a_difference_does_not_count_in_the_first_steps() -> None:
    few = {
        0: replace(report(0, Phase.AGREE, 9), marks=marks(3)),
        1: replace(report(1, Phase.AGREE, 8), marks=marks(3, (3, Phase.UPDATE))),
    }
    assert mismatched(few) is None


def test_the_usual_number_of_collectives_is_that_of_most_steps() -> None:
    found = usual_counts(marks(9, (4, Phase.UPDATE)), issued)
    assert found == {Phase.PASSES: 0, Phase.UPDATE: 2, Phase.AGREE: 2, Phase.BETWEEN: 3}


def test_exchanges_of_an_earlier_view_are_not_compared_with_those_of_the_next() -> None:
    """A step that is redone begins with another number: its counts would be below zero."""
    aborted = marks(9)[:-1]
    restarted = Mark(100, 0, 9, Phase.STARTUP, 0)
    formed = Mark(101, 0, 9, Phase.BETWEEN, 1)
    alone = replace(report(0, Phase.LOADER, 2), marks=(*aborted, restarted, formed))
    assert mismatched({0: alone}) is None
    assert usual_counts((*aborted, restarted, formed), issued) == {}


def test_all_ranks_of_a_silent_node_are_found_in_the_time_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lowest rank that answers judges: it does not wait for each rank below it in turn."""
    team = Team(label=attempt_label(1), rank=8, world=10, attempt=1)
    judging = judge.Judge(tmp_path, team, silent_s=5.0)
    judging.board.prepare()
    for rank in range(8):
        judging.board.write(report(rank, Phase.PASSES, 82))
    now = 0.0
    clock = SimpleNamespace(monotonic=lambda: now, time=lambda: now)
    monkeypatch.setattr(judge, "time", clock)
    while not judging.verdicts.all() and now < 60:
        now += 1
        judging.board.write(replace(report(9, Phase.AGREE, 84, waiting=True), beat=int(now)))
        judging.judge_standstill(report(8, Phase.AGREE, 84, waiting=True))
    (found,) = judging.verdicts.all()
    assert (found.rank, found.what) == (0, "does not answer, and 7 more ranks do not either")
    assert now <= 10
