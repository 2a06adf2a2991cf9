"""Spares hold the state and follow every step: they replace lost groups at once."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.trainer.elastic_groups import (
    ElasticRun,
    advance,
    groups_of_one_or_two,
    groups_of_two,
    grown,
)
from tests.trainer.ranks import until

pytestmark = pytest.mark.long(92)


def add_spares(run: ElasticRun, count: int) -> None:
    """Start further groups, and wait until they follow."""
    for _ in range(count):
        members = len(run.view()["members"])
        run.add()
        run.until_groups(members + 1)
    advance(run, 5)


def lose(run: ElasticRun, victim: int) -> None:
    """Kill a group, and wait until the others go on."""
    before = run.view()["number"]
    run.groups[victim].signal(signal.SIGKILL)
    until(lambda: run.view()["number"] > before, f"a view without it: {run.output()}")
    advance(run)


def views(run: ElasticRun, after: int) -> list[dict[str, Any]]:
    """Return the views after this number."""
    return [run.read_view(number) for number in range(after + 1, run.view()["number"] + 1)]


@groups_of_one_or_two
def test_spares_replace_two_groups_that_are_lost_at_once(elastic: ElasticRun) -> None:
    elastic.numbers |= {"max": 3, "spares": 2}
    grown(elastic, 3)
    add_spares(elastic, 2)
    before = elastic.view()["number"]
    for victim in (0, 2):
        elastic.groups[victim].signal(signal.SIGKILL)
    elastic.until_groups(3)
    advance(elastic)
    # Each loss is replaced in the view that notes it: no group takes a step alone meanwhile.
    assert [len(view["members"]) for view in views(elastic, before)] in ([3], [4, 3])
    assert {event["groups"] for event in elastic.files.events("membership")[-2:]} == {3}
    assert not any(elastic.groups[spare].all_ended() for spare in (3, 4))


@groups_of_two
def test_a_spare_goes_on_from_memory_when_all_groups_are_lost(elastic: ElasticRun) -> None:
    elastic.numbers |= {"max": 1, "spares": 1}
    elastic.settings += ("checkpoint.every_steps=1000000",)
    grown(elastic, 1)
    add_spares(elastic, 1)
    elastic.groups[0].signal(signal.SIGKILL)
    until(lambda: len(elastic.files.events("started")) == 2, f"the spare: {elastic.output()}")
    advance(elastic)
    assert elastic.files.events("checkpoint_commit") == []


@groups_of_one_or_two
def test_the_loss_of_a_spare_disturbs_nobody(elastic: ElasticRun) -> None:
    elastic.numbers |= {"max": 2, "spares": 1}
    grown(elastic, 2)
    add_spares(elastic, 1)
    before = elastic.view()["number"]
    elastic.groups[2].signal(signal.SIGKILL)
    until(lambda: elastic.view()["number"] > before, "the loss")
    advance(elastic, 10)
    add_spares(elastic, 1)
    before = elastic.view()["number"]
    elastic.groups[1].signal(signal.SIGTERM)
    until(lambda: elastic.view()["number"] > before, "the leave")
    assert [len(view["members"]) for view in views(elastic, before)] == [2]
    advance(elastic)


@groups_of_one_or_two
def test_a_spare_learns_which_step_was_evaluated_last(elastic: ElasticRun) -> None:
    elastic.numbers |= {"max": 3, "spares": 1}
    grown(elastic, 3)
    add_spares(elastic, 1)
    evaluated = len(elastic.files.events("evaluated"))
    until(lambda: len(elastic.files.events("evaluated")) > evaluated, "an evaluation")
    advance(elastic)
    for victim in (1, 2):
        lose(elastic, victim)
    advance(elastic, 40)
    steps = [event["step"] for event in elastic.files.events("evaluated")]
    assert steps == list(range(40, steps[-1] + 1, 40))
    assert not elastic.groups[3].all_ended(), elastic.output()
