"""Checks of the section `sweep` of a run file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from infra.sections.errors import ConfigIssue, did_you_mean, one_of, shown
from ops.sweep import space
from ops.sweep.space import Choice, Range
from ops.sweep.state import SweepState
from trainer.metrics.progress import METRICS
from training.run_schema import RUNS_MAX, SweepSection


def check_section(
    section: SweepSection, parameters: Mapping[str, Choice | Range]
) -> list[ConfigIssue]:
    """Return what contradicts itself. `parameters`: the well-formed ones."""
    return [
        *_ranges(section, parameters),
        *(_grid(section, parameters) if section.method == "grid" else _samples(section)),
        *_asha(section),
    ]


def _ranges(
    section: SweepSection, parameters: Mapping[str, Choice | Range]
) -> Iterator[ConfigIssue]:
    for name, one in parameters.items():
        path = f"parameters.{name}"
        if isinstance(one, Choice):
            if len(set(map(repr, one.values))) < len(one.values):
                yield ConfigIssue(
                    path=path,
                    code="duplicate",
                    problem="a value is listed twice",
                    valid="must list each value once",
                    action="remove it",
                )
        elif section.method == "grid":
            yield ConfigIssue(
                path=path,
                code="range-in-grid",
                problem="a range has no combinations",
                valid="must be a list with method grid",
                action="list values, or set method: random",
            )
        elif not one.low < one.high or (one.scale == "log" and one.low <= 0):
            above = ", and min above 0 with scale log" if one.scale == "log" else ""
            yield ConfigIssue(
                path=path,
                code="empty-range",
                problem=f"{one.low:g} to {one.high:g} is not a range",
                valid=f"must have min below max{above}",
                action="correct it",
            )


def _grid(section: SweepSection, parameters: Mapping[str, Choice | Range]) -> Iterator[ConfigIssue]:
    size = space.grid_size({n: one for n, one in parameters.items() if isinstance(one, Choice)})
    most = RUNS_MAX if section.runs is None else section.runs
    if size > most:
        yield ConfigIssue(
            path="runs",
            code="grid-too-large",
            problem=f"the grid has {size} combinations, more than {most}",
            valid=f"must be at least {size}" if size <= RUNS_MAX else f"must be at most {RUNS_MAX}",
            action="list fewer values, raise runs, or set method: random",
        )


def _samples(section: SweepSection) -> Iterator[ConfigIssue]:
    if section.runs is None:
        yield ConfigIssue(
            path="runs",
            code="missing",
            problem="missing",
            valid=f"must be a number of runs with method {section.method}",
            action="add it",
        )


def _asha(section: SweepSection) -> Iterator[ConfigIssue]:
    if (section.method == "asha") == (section.asha is not None):
        return
    wanted = section.method == "asha"
    yield ConfigIssue(
        path="asha",
        code="missing" if wanted else "asha-only",
        problem="missing" if wanted else f"has no effect with method {section.method}",
        valid="must be {minSteps, reduction} with method asha"
        if wanted
        else "must be absent without method asha",
        action="add it" if wanted else "remove it, or set method: asha",
    )


def check_metric(metric: str, base: Mapping[str, Any]) -> Iterator[ConfigIssue]:
    """Check the metric's name. `base`: the other sections of the file.

    The built-in trainer has a fixed set of metrics; other programs report what they like.
    """
    if "program" not in base and metric not in METRICS:
        yield ConfigIssue(
            path="metric",
            code="unknown-name",
            problem=f"{shown(metric)} is not a metric of the built-in trainer",
            valid=f"must be one of {one_of(METRICS)}",
            action=did_you_mean(metric, METRICS, "choose one"),
        )


def check_budget(section: SweepSection, state: SweepState) -> Iterator[ConfigIssue]:
    """Check the cost cap: against all runs, or against one where `asha` ends most of them early."""
    if section.cost_cap_usd is None:
        return
    if state.max_hours is None or state.usd_per_hour is None:
        hours = state.max_hours is None
        yield ConfigIssue(
            path="costCapUsd",
            code="missing" if hours else "price-unknown",
            problem="has no maxHours to limit" if hours else "an eligible pool has no known price",
            valid="requires maxHours of the run" if hours else "requires a price for each pool",
            action="add maxHours" if hours else "set gpuModel or allowSpot, or remove costCapUsd",
        )
        return
    counted = 1 if section.method == "asha" else len(state.trials)
    worst = counted * state.max_hours * state.usd_per_hour
    if worst > section.cost_cap_usd * (1 + 1e-9):
        yield ConfigIssue(
            path="costCapUsd",
            code="above-cost-cap",
            problem=f"{section.cost_cap_usd:g} is less than {counted} x {state.max_hours:g} h at "
            f"{state.usd_per_hour:.2f} USD/h, the highest price of a matching pool",
            valid=f"must be at least {worst:.2f}",
            action="raise it, or lower runs or maxHours",
        )
