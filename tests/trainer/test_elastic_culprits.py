"""A group that hangs, is slow or computes wrong values is named and lost; the others go on with the same bits."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.trainer import culprit_faults
from tests.trainer.culprit_faults import Fault
from tests.trainer.elastic_groups import (
    ENDLESS,
    SILENT,
    ElasticRun,
    advance,
    groups_of_one_or_two,
    groups_of_two,
    grown,
    stop_run,
)
from tests.trainer.fault_table import Trials
from tests.trainer.ranks import Hook, Ranks, until
from tests.trainer.runs import Trainer
from training.trainer.flight.reports import Board, view_label
from trainyard.culprits import CORRUPT, HUNG, MISMATCHED, SLOW_RANK, Verdicts

pytestmark = pytest.mark.long(131)

PATIENCE = ("report.hang_after_s=3", "report.share_window_s=1", "collective_timeout_s=120")
"""Seconds instead of half a minute: the hangs here are real ones."""
ALIVE = ("loader", "forward", "backward", "optimizer")
"""Hangs in which the process still sends heartbeats."""
groups_of_one = pytest.mark.parametrize("elastic", [pytest.param(1, id="1 rank")], indirect=True)
SAVED_EVERY = 5
"""Steps, in the configuration of these runs."""
STEPS = 20
"""After so many, wrong values have been compared or are not there any more."""


def broken(run: ElasticRun, fault: Fault, number: int) -> Ranks:
    """Let one more group join, and the fault happen in it: it is the last member."""
    armed = run.trainer.root / f"armed-{number}"
    members = len(run.view()["members"])
    group = run.add(fault.hook(armed))
    run.until_groups(members + 1)
    advance(run)
    armed.touch()
    return group


def verdict(run: ElasticRun, number: int = 0) -> dict[str, Any]:
    """Wait for one more verdict than `number`, and return its event."""
    until(lambda: len(run.files.events("culprit")) > number, f"a verdict: {run.output()}")
    return run.files.events("culprit")[number]


def lost(run: ElasticRun) -> None:
    """Wait for the end of the group that was started last, which fails."""
    codes = run.groups.pop().wait()
    assert codes == [1] * run.ranks, run.output()


@groups_of_one_or_two
def test_a_group_that_hangs_though_it_answers_is_named_and_ends_itself(
    elastic: ElasticRun, trials: Trials
) -> None:
    name = f"elastic: a rank of a group of {elastic.ranks} hangs"
    elastic.settings += PATIENCE
    grown(elastic, 2)
    for number in trials.numbers(name, 1, 12):
        place = "loader" if elastic.ranks > 1 else trials.chance.choice(ALIVE)
        group = broken(elastic, Fault("hang", place, elastic.ranks - 1, 0), number)
        found = verdict(elastic, number)
        assert (found["symptom"], found["rank"]) == (HUNG, 3 * elastic.ranks - 1), elastic.output()
        assert found["node"] and found["frame"].endswith("_stand_still")
        assert any(line.startswith("rank of group ") for line in found["evidence"])
        lost(elastic)
        assert "the others went on without it" in group.output()
        elastic.until_groups(2)
        advance(elastic)
        assert len(Verdicts(elastic.files.path).all()) == number + 1
    elastic.add()
    elastic.until_groups(3)
    advance(elastic)
    trials.passed = True


@groups_of_one
def test_a_group_that_hangs_before_the_states_are_compared_is_named(elastic: ElasticRun) -> None:
    elastic.settings += PATIENCE
    grown(elastic, 2)
    armed = elastic.trainer.root / "armed"
    elastic.add(culprit_faults.hang_before_a_save(armed, SAVED_EVERY))
    elastic.until_groups(3)
    advance(elastic, 3 * SAVED_EVERY)
    armed.touch()
    found = verdict(elastic)
    assert (found["symptom"], found["rank"]) == (HUNG, 2), elastic.output()
    assert found["step"] % SAVED_EVERY == 0 and "the optimizer" in found["what"]
    assert "the comparison of replicas" in str(found["evidence"])
    lost(elastic)


def slow_to_write(held: Path) -> Hook:
    """Have the files of checkpoints wait while `held` exists."""

    def hook(_: int) -> None:
        from trainyard.store.posix import PosixUpload

        plain = PosixUpload.put

        def put(upload: PosixUpload, name: str, chunks: Any) -> Any:
            until(lambda: not held.exists(), "the storage")
            return plain(upload, name, chunks)

        pytest.MonkeyPatch().setattr(PosixUpload, "put", put)

    return hook


@groups_of_one
def test_a_leader_that_waits_for_storage_is_not_named(elastic: ElasticRun) -> None:
    elastic.settings += PATIENCE
    held = elastic.trainer.root / "held"
    grown(elastic, 2, slow_to_write(held))
    until(lambda: elastic.files.events("checkpoint_commit"), f"a checkpoint: {elastic.output()}")
    held.touch()
    board = Board(elastic.files.path, view_label(elastic.view()["number"]))

    def waits(rank: int, still_s: float) -> bool:
        report = board.read([rank]).get(rank)
        return report is not None and report.stuck and report.seconds >= still_s

    until(
        lambda: waits(1, 7.0) or elastic.files.events("culprit"),
        f"the other group to wait for the leader: {elastic.output()}",
    )
    held.unlink()
    advance(elastic)
    assert not elastic.files.events("culprit")
    assert len(elastic.view()["members"]) == 2
    assert elastic.files.events("checkpoint_waited")[-1]["seconds"] > 3


@groups_of_one
def test_a_group_that_is_stopped_is_named_once(elastic: ElasticRun) -> None:
    elastic.settings += (*PATIENCE, SILENT)
    grown(elastic, 3)
    elastic.groups[1].signal(signal.SIGSTOP)
    found = verdict(elastic)
    assert (found["symptom"], found["rank"]) == (HUNG, 1)
    assert "its process is stopped (SIGSTOP)" in found["evidence"][0]
    elastic.until_groups(2)
    advance(elastic)
    elastic.groups[1].signal(signal.SIGCONT)
    elastic.until_groups(3)
    advance(elastic)
    assert len(elastic.files.events("culprit")) == 1


@pytest.mark.full_only
@groups_of_two
def test_a_stopped_rank_is_named_by_its_own_group_or_by_another(elastic: ElasticRun) -> None:
    elastic.settings += (*PATIENCE, SILENT)
    grown(elastic, 2)
    stopped = elastic.groups.pop()
    stopped.signal(signal.SIGSTOP, 1)
    found = verdict(elastic)
    assert (found["symptom"], found["rank"]) == (HUNG, 3)
    elastic.until_groups(1)
    advance(elastic)
    until(lambda: stopped.all_ended() or 0 in stopped.codes, f"the group: {stopped.output()}")
    stopped.end()
    assert stopped.codes[0] == 1
    elastic.add()
    elastic.until_groups(2)
    advance(elastic)
    assert len(elastic.files.events("culprit")) == 1


@groups_of_two
def test_a_group_in_which_a_rank_skips_a_collective_is_named(elastic: ElasticRun) -> None:
    elastic.settings += PATIENCE
    grown(elastic, 1)
    broken(elastic, Fault("skip", culprit_faults.INSIDE, 1, 0), 0)
    found = verdict(elastic)
    assert found["symptom"] in (HUNG, MISMATCHED) and found["rank"] in (2, 3), elastic.output()
    codes = elastic.groups.pop().wait()
    assert 0 not in codes and 75 not in codes
    elastic.until_groups(1)
    advance(elastic)


@pytest.mark.full_only
def test_a_slow_group_is_named(trainer: Trainer) -> None:
    larger = ("model.hidden_size=64", "model.intermediate_size=128", "data.sequence_length=64")
    run = ElasticRun(trainer, "slow", (*ENDLESS, *PATIENCE, *larger))
    grown(run, 2)
    broken(run, Fault("slow", "work", 0, 0), 0)
    found = verdict(run)
    assert (found["symptom"], found["rank"]) == (SLOW_RANK, 2), run.output()
    stop_run(run)


@groups_of_one
def test_a_group_with_wrong_values_is_named_and_the_next_ones_go_on_from_the_last_agreed_step(
    elastic: ElasticRun, trials: Trials
) -> None:
    elastic.settings += PATIENCE
    for number in trials.numbers("elastic: a flipped bit in one of 3 groups", 1, 15):
        grown(elastic, 2)
        found: dict[str, Any] = {}
        while not found:  # zeros and small numbers may be the same again before the comparison
            broken(elastic, flip(trials), number)
            found = one_of(elastic, number)
            if not found:
                leave(elastic)
        assert (found["symptom"], found["rank"]) == (CORRUPT, 2), elastic.output()
        assert elastic.wait() == [1] * 3, elastic.output()
        assert "nothing is saved" in elastic.output()
        saved = elastic.files.events("checkpoint_commit")[-1]["step"]
        assert saved < found["step"]
        elastic.groups.clear()
        elastic.add()
        until(lambda n=number: len(elastic.files.events("resumed")) > n, "the next group")  # type: ignore[misc]
        assert elastic.files.events("resumed")[-1]["from_step"] == saved
    advance(elastic)
    trials.passed = True


def flip(trials: Trials) -> Fault:
    """Return a random flipped bit; the lowest ones are rounded away before the comparison."""
    chance = trials.chance
    place = chance.choice(culprit_faults.FLIPS)
    fault = Fault("flip", place, 0, 0, bit=chance.randrange(12, 32), spot=chance.random())
    print(fault)
    return fault


def one_of(run: ElasticRun, number: int) -> dict[str, Any]:
    """Return one more verdict than `number`; empty if the groups take further steps without one."""
    last = run.files.last_step() + STEPS
    until(
        lambda: len(run.files.events("culprit")) > number or run.files.last_step() >= last,
        f"a verdict: {run.output()}",
    )
    return next(iter(run.files.events("culprit")[number:]), {})


def leave(run: ElasticRun) -> None:
    """Let the group that was started last leave."""
    group = run.groups.pop()
    group.signal(signal.SIGTERM)
    assert group.wait() == [75], group.output()
    run.until_groups(len(run.groups))


def failing(armed: Path, failing_rank: int) -> Hook:
    """Let a rank fail once this file exists."""

    def hook(rank: int) -> None:
        from training.trainer.data.prefetch import PrefetchLoader

        plain = PrefetchLoader.take

        def take_or_fail(loader: PrefetchLoader, first: int, count: int) -> Any:
            if rank == failing_rank and armed.exists():
                raise RuntimeError("the loader is broken")
            return plain(loader, first, count)

        pytest.MonkeyPatch().setattr(PrefetchLoader, "take", take_or_fail)

    return hook


@groups_of_one_or_two
def test_a_rank_that_fails_reports_that_with_its_frames(elastic: ElasticRun) -> None:
    armed, failing_rank = elastic.trainer.root / "armed", elastic.ranks - 1
    grown(elastic, 1, failing(armed, failing_rank))
    armed.touch()
    lost(elastic)
    (file,) = (elastic.files.path / "flight").glob(f"view-*/rank-{failing_rank:05d}.json")
    report = json.loads(file.read_text())
    assert (report["state"], report["error"]) == ("failed", "the loader is broken")
    assert report["frames"][-1].endswith("take_or_fail")
    elastic.add()
    advance(elastic)


@groups_of_one
def test_none_is_named_while_groups_join_and_leave(elastic: ElasticRun, trials: Trials) -> None:
    steps = trials.numbers("elastic: none is named while groups join and leave", 300, 20_000)
    grown(elastic, 2)
    while elastic.files.last_step() < len(steps):
        elastic.add()
        elastic.until_groups(3)
        advance(elastic, 20)
        leaving = elastic.groups.pop(trials.chance.randrange(3))
        leaving.signal(signal.SIGTERM)
        assert leaving.wait() == [75], leaving.output()
        elastic.until_groups(2)
        advance(elastic, 20)
    assert Verdicts(elastic.files.path).all() == []
    assert elastic.files.events("culprit") == []
    trials.passed = True
