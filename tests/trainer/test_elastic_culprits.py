"""A group that computes wrong values is named; those that go on have the same bits."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.trainer import culprit_faults
from tests.trainer.culprit_faults import Fault
from tests.trainer.elastic_groups import (
    ElasticRun,
    advance,
    groups_of_one,
    grown,
)
from tests.trainer.fault_table import Trials
from tests.trainer.ranks import Ranks, until
from trainyard.culprits import CORRUPT

pytestmark = pytest.mark.long(131)

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


@groups_of_one
def test_a_group_with_wrong_values_is_named_and_the_next_ones_go_on_from_the_last_agreed_step(
    elastic: ElasticRun, trials: Trials
) -> None:
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
    fault = Fault(place, 0, 0, bit=chance.randrange(12, 32), spot=chance.random())
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
