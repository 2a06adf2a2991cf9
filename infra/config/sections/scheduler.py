"""The scheduler of runs and what it requires of operators, cluster and teams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final

from pydantic import Field

from infra.addons.kueue_config import PRODUCTION_TIMEOUTS, Timeouts
from infra.config.errors import ConfigIssue, shown
from infra.config.partial import Check, PartialStack
from infra.config.sections.operators import installed
from infra.config.sections.teams.model import read_teams
from infra.config.types import Int, StrictModel
from infra.domain.scheduler import DEFAULT_SCHEDULER, Scheduler
from infra.queueing.backends import backend

_Seconds = Annotated[Int, Field(ge=1, le=86400)]


class GangTimeoutsConfig(StrictModel):
    """Timeouts of the Kueue that the stack installs."""

    start_seconds: _Seconds = PRODUCTION_TIMEOUTS.start
    """Seconds from a gang's admission until all of its pods are ready, new nodes and images included; then it is
    evicted and queued again."""
    recovery_seconds: _Seconds = PRODUCTION_TIMEOUTS.recovery
    """The same after the loss of a ready pod, the save of the others included."""
    backoff_seconds: _Seconds = PRODUCTION_TIMEOUTS.backoff_base
    """Seconds before an evicted gang may be admitted again; doubles with every such eviction."""
    max_backoff_seconds: _Seconds = PRODUCTION_TIMEOUTS.backoff_max
    """Most of these seconds."""

    @property
    def timeouts(self) -> Timeouts:
        """Return the timeouts for Kueue's configuration."""
        return Timeouts(
            start=self.start_seconds,
            recovery=self.recovery_seconds,
            backoff_base=self.backoff_seconds,
            backoff_max=self.max_backoff_seconds,
        )


def check_timeouts_used(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Reject timeouts of a Kueue that the stack does not install."""
    if stack.raw.get("gangTimeouts") is not None and "kueue" not in installed(stack):
        yield ConfigIssue(
            path="gangTimeouts",
            code="timeouts-unused",
            problem="the stack does not install Kueue",
            valid="requires operators.kueue: {provided: false}",
            action="remove it, and configure waitForPodsReady of the cluster's own Kueue",
        )


_PROVIDED: Final = "{provided: true} or {provided: false}"


def _chosen(stack: PartialStack) -> Scheduler | None:
    """Return the scheduler; None if the file names an unknown one, which is reported."""
    named = stack.raw.get("scheduler", DEFAULT_SCHEDULER.value)
    return next((one for one in Scheduler if one.value == named), None)


def _with(scheduler: Scheduler) -> str:
    """Return the scheduler for a message, unless it is the default."""
    return "" if scheduler is DEFAULT_SCHEDULER else f" with scheduler {scheduler.value}"


def check_scheduler_operator(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require the scheduler's operator, and no other scheduler's."""
    scheduler = _chosen(stack)
    named: Any = stack.raw.get("operators")
    if scheduler is None or not isinstance(named, dict):
        return
    operator = backend(scheduler).operator
    if operator and named.get(operator) is None:
        yield ConfigIssue(
            path=f"operators.{operator}",
            code="operator-required",
            problem="missing",
            valid=f"must be {_PROVIDED}{_with(scheduler)}",
            action="add it",
        )
    for other in Scheduler:
        foreign = backend(other).operator
        if other is not scheduler and foreign and named.get(foreign) is not None:
            yield ConfigIssue(
                path=f"operators.{foreign}",
                code="second-scheduler",
                problem="a second scheduler for runs",
                valid=f"only the operator of scheduler {scheduler.value} is valid, which "
                "queues the runs",
                action=f"remove it, or set scheduler: {other.value}",
            )


def check_native_version(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require a cluster version that serves the PodGroup API for scheduler: native."""
    scheduler = _chosen(stack)
    cluster: Any = stack.raw.get("cluster")
    version = cluster.get("version") if isinstance(cluster, dict) else None
    if not isinstance(version, str | None):
        return  # Reported already.
    apis = backend(scheduler).gang_apis if scheduler else {}
    if scheduler is None or not apis:
        idle = not installed(stack)
        if scheduler and stack.provider == "existing" and version is not None and idle:
            yield ConfigIssue(
                path="cluster.version",
                code="version-unused",
                problem=f"{shown(version)} is not used",
                valid="requires scheduler: native, or an add-on that the stack installs",
                action="remove it",
            )
        return
    versions = " or ".join(apis)
    if stack.provider == "eks":
        *others, last = [one.value for one in Scheduler if not backend(one).gang_apis]
        yield ConfigIssue(
            path="scheduler",
            code="native-on-eks",
            problem=f"{shown(scheduler.value)} requires the PodGroup API, which EKS does not serve",
            valid=f"must be {', '.join(others)} or {last}",
            action="choose one",
        )
        return
    if version not in apis:
        yield ConfigIssue(
            path="cluster.version",
            code="native-version",
            problem=f"{shown(version)} does not serve the PodGroup API" if version else "missing",
            valid=f"must be {versions} with scheduler {scheduler.value}",
            action="set the cluster's version, and enable GenericWorkload and GangScheduling there",
        )


def check_team_options(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Reject team options that the scheduler does not support."""
    scheduler = _chosen(stack)
    if scheduler is None or backend(scheduler).limits_by_pool:
        return
    for index, team in read_teams(stack):
        kueues = {
            "fairWeight": team.fair_weight not in (None, 1),
            "borrowing": bool(team.borrowing),
            "lending": bool(team.lending),
            "onDemandUsdPerHour": team.on_demand_usd_per_hour is not None,
            # Only Kueue ends a run at its time limit.
            "caps.hours": team.caps.hours is not None,
            "caps.usd": team.caps.usd is not None,
        }
        for option in (name for name, given in kueues.items() if given):
            yield ConfigIssue(
                path=f"teams[{index}].{option}",
                code="kueue-only",
                problem="only Kueue supports this option",
                valid=f"must be absent{_with(scheduler)}",
                action="remove it, or set scheduler: kueue",
            )
        if not backend(scheduler).has_queues and any(team.guaranteed.values()):
            yield ConfigIssue(
                path=f"teams[{index}].guaranteed",
                code="no-queues",
                problem=f"guarantees nodes of {', '.join(sorted(team.guaranteed))}",
                valid=f"must be empty{_with(scheduler)}, which has no queues",
                action="remove it, or choose a scheduler with queues",
            )


CHECKS: Final[tuple[Check, ...]] = (
    check_scheduler_operator,
    check_native_version,
    check_team_options,
    check_timeouts_used,
)
