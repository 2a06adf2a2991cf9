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
            if not chosen.has_queues:
                del team["guaranteed"]

    return edit


def both(*edits: Edit) -> Edit:
    """Apply one edit after the other."""

    def edit(stack: dict[str, Any]) -> None:
        for one in edits:
            one(stack)

    return edit


BAD: dict[str, tuple[Edit, str]] = {
    "no such scheduler": (
        lambda s: s.update(scheduler="volcanoo"),
        "scheduler: unknown-value",
    ),
    "Kueue without its operator": (
        lambda s: s["operators"].pop("kueue"),
        "operators.kueue: operator-required",
    ),
    "Volcano without its operator": (
        both(choose("volcano"), lambda s: s["operators"].pop("volcano")),
        "operators.volcano: operator-required",
    ),
    "two schedulers": (
        both(choose("yunikorn"), lambda s: s["operators"].update(kueue=_PROVIDED)),
        "operators.kueue: second-scheduler",
    ),
    "a second scheduler beside Kubernetes' own": (
        both(choose("native"), lambda s: s["operators"].update(volcano=_PROVIDED)),
        "operators.volcano: second-scheduler",
    ),
    "native without a version": (
        both(choose("native"), lambda s: s["cluster"].pop("version")),
        "cluster.version: native-version",
    ),
    "native in a version of another form": (
        both(choose("native"), lambda s: s["cluster"].update(version="1.35")),
        "cluster.version: native-version",
    ),
    "a version that nothing depends on": (
        lambda s: s["cluster"].update(version="1.37"),
        "cluster.version: version-unused",
    ),
    "a version that is a number": (
        both(choose("native"), lambda s: s["cluster"].update(version=1.37)),
        "cluster.version: wrong-type",
    ),
    "weights that Volcano's queues do not know": (
        both(choose("volcano"), lambda s: s["teams"][0].update(fairWeight=3)),
        "teams[0].fairWeight: kueue-only",
    ),
    "a limit of borrowing that YuniKorn's queues do not know": (
        both(choose("yunikorn"), lambda s: s["teams"][0].update(borrowing={"spot": 1})),
        "teams[0].borrowing: kueue-only",
    ),
    "a limit of lending that Volcano's queues do not know": (
        both(choose("volcano"), lambda s: s["teams"][0].update(lending={"spot": 1})),
        "teams[0].lending: kueue-only",
    ),
    "a cap of cost that Volcano's queues do not know": (
        both(choose("volcano"), lambda s: s["teams"][0].update(onDemandUsdPerHour=40.0)),
        "teams[0].onDemandUsdPerHour: kueue-only",
    ),
    "guarantees without queues": (
        both(choose("native"), lambda s: s["teams"][1].update(guaranteed={"ondemand": 1})),
        "teams[1].guaranteed: no-queues",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_each_mistake_is_one_issue(name: str) -> None:
    edit, expected = BAD[name]
    values = copy.deepcopy(example())
    edit(values)
    check_issues("schedulers", name, values, expected)


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
