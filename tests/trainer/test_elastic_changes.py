"""Random changes of the membership of the trainer: no loss differs in any bit."""

from __future__ import annotations

import signal

import pytest

from bench.elastic import plan_changes
from bench.groups import SIGNALS
from tests.trainer.elastic_groups import SILENT, ElasticRun, advance, groups_of_one, stop_run
from tests.trainer.fault_table import Trials
from tests.trainer.ranks import Ranks, until
from trainyard.culprits import CORRUPT, Verdicts

pytestmark = pytest.mark.long(17)


def lose(run: ElasticRun, victim: Ranks, kind: str) -> None:
    """Take a group away; a silent one is ended only once the others went on without it."""
    before = run.view()["number"]
    victim.signal(SIGNALS[kind])
    if kind == "silent":
        until(lambda: run.view()["number"] > before, "a view without it")
        victim.signal(signal.SIGKILL)


@groups_of_one
def test_changes_of_the_membership_change_no_bit(trials: Trials, elastic: ElasticRun) -> None:
    """Every loss is compared at the end, as in all tests of `elastic`."""
    elastic.settings += (SILENT,)
    count = len(trials.numbers("elastic groups leave, die, fall silent and join", 4, 200))
    alive = [elastic.add()]
    advance(elastic)
    for kind in plan_changes(count, trials.seed):
        if kind == "joined":
            alive.append(elastic.add())
        else:
            lose(elastic, alive.pop(trials.chance.randrange(len(alive))), kind)
        elastic.until_groups(len(alive))
        advance(elastic)
    stop_run(elastic)
    steps = [line["step"] for line in elastic.files.metrics()]
    assert steps == list(range(1, len(steps) + 1))
    assert not [one for one in Verdicts(elastic.files.path).all() if one.symptom == CORRUPT]
    trials.passed = True
