"""The scheduler: its operator is there and no second one, and nothing asks for what it cannot do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from infra.config.checks import add_ons
from infra.config.checks.parts import Parts
from infra.config.mistakes import Mistake, shown
from infra.domain.scheduler import NATIVE_GANG_APIS, Scheduler

_PROVIDED: Final = "{provided: true} or {provided: false}"


def _chosen(parts: Parts) -> Scheduler | None:
    """None: the file names none that there is, which is a mistake of its own."""
    named = parts.raw.get("scheduler", Scheduler.KUEUE.value)
    return next((one for one in Scheduler if one.value == named), None)


def _with(scheduler: Scheduler) -> str:
    """Says which scheduler the rule follows from, unless nobody chose one."""
    return "" if scheduler is Scheduler.KUEUE else f" with scheduler {scheduler.value}"


def operators(parts: Parts) -> Iterator[Mistake]:
    """The scheduler's operator is named, and no other scheduler's: two would each hold the other's runs."""
    scheduler = _chosen(parts)
    named: Any = parts.raw.get("operators")
    if scheduler is None or not isinstance(named, dict):
        return
    if scheduler.operator and named.get(scheduler.operator) is None:
        yield Mistake(
            path=f"operators.{scheduler.operator}",
            got="nothing",
            allowed=f"{_PROVIDED}{_with(scheduler)}",
            remedy="add it",
        )
    for other in Scheduler:
        if other is not scheduler and other.operator and named.get(other.operator) is not None:
            yield Mistake(
                path=f"operators.{other.operator}",
                got="a second scheduler of runs",
                allowed=f"the operator of scheduler {scheduler.value} only, which queues them",
                remedy=f"remove it, or set scheduler: {other.value}",
            )


def native(parts: Parts) -> Iterator[Mistake]:
    """Kubernetes' own gangs: only where the API is served, and promising no more than it does."""
    scheduler = _chosen(parts)
    cluster: Any = parts.raw.get("cluster")
    version = cluster.get("version") if isinstance(cluster, dict) else None
    if not isinstance(version, str | None):
        return  # A mistake of its own.
    if scheduler is not Scheduler.NATIVE:
        idle = not add_ons.installed(parts)
        if scheduler and parts.provider == "existing" and version is not None and idle:
            yield Mistake(
                path="cluster.version",
                got=shown(version),
                allowed="nothing but with scheduler native or with add-ons that the stack installs, "
                "for nothing else depends on it",
                remedy="remove it",
            )
        return
    versions = " or ".join(NATIVE_GANG_APIS)
    if parts.provider == "eks":
        yield Mistake(
            path="scheduler",
            got="native on EKS, which does not serve the API of pod groups",
            allowed="kueue, volcano or yunikorn",
            remedy="choose one",
        )
        return
    if version not in NATIVE_GANG_APIS:
        yield Mistake(
            path="cluster.version",
            got=shown(version),
            allowed=f"{versions} with scheduler native, for its API of pod groups is of these versions",
            remedy="name the cluster's version, and turn GenericWorkload and GangScheduling on there",
        )


def team_options(parts: Parts) -> Iterator[Mistake]:
    """No team is promised what its scheduler has no means to keep."""
    scheduler = _chosen(parts)
    if scheduler in (None, Scheduler.KUEUE):
        return
    assert scheduler
    for index, team in parts.teams:
        kueues = {
            "fairWeight": team.fair_weight not in (None, 1),
            "borrowing": bool(team.borrowing),
            "lending": bool(team.lending),
            "onDemandUsdPerHour": team.on_demand_usd_per_hour is not None,
        }
        for option in (name for name, given in kueues.items() if given):
            yield Mistake(
                path=f"teams[{index}].{option}",
                got="what only Kueue's queues know",
                allowed=f"nothing{_with(scheduler)}",
                remedy="remove it, or set scheduler: kueue",
            )
        if not scheduler.has_queues and any(team.guaranteed.values()):
            yield Mistake(
                path=f"teams[{index}].guaranteed",
                got=f"nodes of {', '.join(sorted(team.guaranteed))}",
                allowed=f"nothing{_with(scheduler)}, which has no queues",
                remedy="remove it, or choose a scheduler with queues",
            )
