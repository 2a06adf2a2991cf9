"""Mistakes about the scheduler in stack files: each is one issue, with a valid counterpart."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from infra.config import parse
from infra.domain.scheduler import Scheduler
from infra.queueing.backends import backend
from tests.golden.example_runs import stack_values as example
from tests.unit.infra import example_eks
from tests.unit.infra.config_issues import check_issues

Edit = Callable[[dict[str, Any]], object]

_PROVIDED = {"provided": True}


def choose(scheduler: str) -> Edit:
    """Change the stack to a complete and valid one with another scheduler."""
    chosen = backend(Scheduler(scheduler))

    def edit(stack: dict[str, Any]) -> None:
        stack["scheduler"] = scheduler
        del stack["operators"]["kueue"]
        if chosen.operator:
            stack["operators"][chosen.operator] = _PROVIDED
        if chosen.gang_apis:
            stack["cluster"]["version"] = max(chosen.gang_apis)
        for team in stack["teams"]:
            if not Scheduler(scheduler).has_queues:
                del team["guaranteed"]

    return edit


@pytest.mark.parametrize("scheduler", [s.value for s in Scheduler if s is not Scheduler.KUEUE])
def test_every_scheduler_can_be_chosen(scheduler: str) -> None:
    values = copy.deepcopy(example())
    choose(scheduler)(values)
    assert parse(values).scheduler == scheduler


def test_kueue_accepts_what_other_schedulers_reject() -> None:
    values = copy.deepcopy(example())
    values["teams"][0] |= {"fairWeight": 3, "borrowing": {"spot": 1}, "lending": {"spot": 1}}
    values["teams"][0]["onDemandUsdPerHour"] = 100.0
    assert parse(values).teams[0].fair_weight == 3


def test_kueue_is_the_default_scheduler() -> None:
    assert parse(example()).scheduler is Scheduler.KUEUE


def test_native_scheduling_is_rejected_on_eks() -> None:
    values = example_eks.stack_values()
    values["scheduler"] = "native"
    values["operators"].pop("kueue")
    for team in values["teams"]:
        team.pop("guaranteed", None)
    check_issues("schedulers", "native on EKS", values, "scheduler: native-on-eks")
