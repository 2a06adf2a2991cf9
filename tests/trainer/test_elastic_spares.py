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

pytestmark = pytest.mark.sampled


def add_spares(run: ElasticRun, count: int) -> None:
    """Start further groups, and wait until they follow."""
    for _ in range(count):
        run.add()
        pids = set(map(str, run.groups[-1].pids))

        def following(pids: set[str] = pids) -> bool:
            lines = run.observed.read_text().splitlines()
            return pids <= {line.split()[0] for line in lines if " applied " in line}

        until(following, f"the spare: {run.output()}")
    advance(run, 5)


def views(run: ElasticRun, after: int) -> list[dict[str, Any]]:
    """Return the views after this number."""
    return [run.read_view(number) for number in range(after + 1, run.view()["number"] + 1)]


@groups_of_one_or_two
def test_spares_replace_two_groups_that_are_lost_at_once(elastic: ElasticRun) -> None:
    elastic.settings += ("groups.max=3", "groups.spares=2")
    grown(elastic, 3)
    add_spares(elastic, 2)
    before = elastic.view()["number"]
    for victim in (0, 2):
        elastic.groups[victim].signal(signal.SIGKILL)
    until(lambda: "joined" in elastic.view()["reason"], f"the spares: {elastic.output()}")
    advance(elastic)
    elastic.until_groups(3)
    # Each loss is replaced in the view that notes it: no group takes a step alone meanwhile.
    assert [len(view["members"]) for view in views(elastic, before)] in ([3], [3, 3])
    assert not any(elastic.groups[spare].all_ended() for spare in (3, 4))


@groups_of_two
def test_a_spare_goes_on_from_memory_when_all_groups_are_lost(elastic: ElasticRun) -> None:
    elastic.settings += ("groups.max=1", "groups.spares=1", "checkpoint.every_steps=1000000")
    grown(elastic, 1)
    add_spares(elastic, 1)
    elastic.groups[0].signal(signal.SIGKILL)
    until(lambda: elastic.files.events("resumed"), f"the spare: {elastic.output()}")
    advance(elastic)
    assert elastic.files.events("checkpoint_commit") == []


@groups_of_one_or_two
def test_the_loss_of_a_spare_disturbs_nobody(elastic: ElasticRun) -> None:
    elastic.settings += ("groups.max=2", "groups.spares=1")
    grown(elastic, 2)
    add_spares(elastic, 1)
    before = elastic.view()["number"]
    elastic.groups[2].signal(signal.SIGKILL)
    advance(elastic, 10)
    assert elastic.view()["number"] == before
    add_spares(elastic, 1)
    elastic.groups[1].signal(signal.SIGTERM)
    until(lambda: elastic.view()["number"] > before, "the leave")
    assert [len(view["members"]) for view in views(elastic, before)] == [2]
    advance(elastic)
