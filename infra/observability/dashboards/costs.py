"""Dashboard of the ledger and the budgets: what this month's node-hours were spent on."""

from __future__ import annotations

from typing import Final

from infra.domain import naming
from infra.observability import series
from infra.observability.dashboards.model import (
    Dashboard,
    Kind,
    Panel,
    Query,
    Row,
    Unit,
    lines,
    number,
)

_LOST: Final = 'bucket=~"replayed|save|starting|ending|faulty|waiting"'
_USD: Final = str(series.LEDGER_USD)
_IN_FORCE: Final = f"max by (team, state) ({series.BUDGET_STATE}) == 1"
_LEFT_USD: Final = (
    f"max by (team) ({series.BUDGET_USD}) - max by (team) ({series.BUDGET_SPENT_USD})"
)

MONTH: Final = Row(
    title="This month",
    panels=(
        number("Cost", Unit.USD, f"sum({_USD})", "Catalog price of all node-hours of this month."),
        number(
            "Lost",
            Unit.USD,
            f"sum({_USD}{{{_LOST}}}) or vector(0)",
            "Repeated steps, saves, starts, ends, faults, and nodes that wait for a run.",
        ),
        number(
            "Lost part",
            Unit.RATIO,
            f"(sum({_USD}{{{_LOST}}}) or vector(0)) / sum({_USD})",
            "The same as a part of all.",
            maximum=1.0,
            thresholds=((0.1, "yellow"), (0.25, "red")),
        ),
        number(
            "Idle",
            Unit.USD,
            f'sum({_USD}{{bucket="idle"}}) or vector(0)',
            "Nodes on which nothing ran and for which nothing waited.",
        ),
        number(
            "Teams at their limit",
            Unit.COUNT,
            f'count(max by (team) ({series.BUDGET_STATE}{{state=~"held|drained"}}) == 1) or vector(0)',
            "Teams whose queue is held or whose runs were stopped.",
            thresholds=((1.0, "red"),),
        ),
        number(
            "Age of the last look",
            Unit.SECONDS,
            f"time() - max({series.COSTS_RECORDED})",
            "Time since the record was written. From 10 minutes on an alert fires.",
            thresholds=((180.0, "yellow"), (600.0, "red")),
        ),
    ),
)

LEDGER: Final = Row(
    title="Ledger of this month",
    panels=(
        lines(
            "Cost by bucket",
            Unit.USD,
            "Sum since the month began. Each node-second is in exactly one bucket.",
            (f"sum by (bucket) ({_USD})", "{{bucket}}"),
            stacked=True,
        ),
        lines(
            "Cost by team",
            Unit.USD,
            "Sum since the month began. Nodes that no run held belong to no team.",
            (f"sum by (team) ({_USD})", "{{team}}"),
            stacked=True,
        ),
        lines(
            "Cost by pool",
            Unit.USD,
            "Sum since the month began, by how the nodes were bought.",
            (f"sum by (pool, capacity) ({_USD})", "{{pool}} {{capacity}}"),
            stacked=True,
        ),
        Panel(
            title="Node time",
            description="Node-seconds since the month began, by bucket and team.",
            unit=Unit.SECONDS,
            kind=Kind.TABLE,
            queries=(
                Query(expression=f"sort_desc(sum by (bucket, team) ({series.LEDGER_SECONDS}) > 0)"),
            ),
            columns=("bucket", "team"),
        ),
        lines(
            "Lost by team",
            Unit.USD,
            "Sum since the month began, by bucket of loss.",
            (f'sum by (team, bucket) ({_USD}{{{_LOST}, team!=""}})', "{{team}} {{bucket}}"),
        ),
        lines(
            "Time without a price",
            Unit.SECONDS,
            "Node-seconds of pools whose price is not known; the sums above lack them.",
            (f"sum by (pool) ({series.LEDGER_UNPRICED})", "{{pool}}"),
        ),
    ),
)

BUDGETS: Final = Row(
    title="Budgets of teams",
    panels=(
        lines(
            "Used part of the budget",
            Unit.RATIO,
            "Of USD or GPU-hours, whichever is used more.",
            (f"max by (team) ({series.BUDGET_USED})", "{{team}}"),
            thresholds=((0.8, "yellow"), (1.0, "red")),
        ),
        Panel(
            title="In force",
            description="What budgets do to their teams now: ok, warned, held, drained or overridden.",
            unit=Unit.NONE,
            kind=Kind.TABLE,
            queries=(Query(expression=_IN_FORCE),),
            columns=("team", "state"),
        ),
        lines(
            "Hours until the limit",
            Unit.COUNT,
            "At what the team's nodes cost now; teams that hold no node are missing.",
            (
                f"clamp_min({_LEFT_USD}, 0) / on (team) (max by (team) ({series.BUDGET_RATE}) > 0)",
                "{{team}}",
            ),
        ),
        lines(
            "Spent",
            Unit.USD,
            "Of nodes that the team's runs hold, and the limit.",
            (f"max by (team) ({series.BUDGET_SPENT_USD})", "{{team}}"),
            (f"max by (team) ({series.BUDGET_USD})", "{{team}} limit"),
        ),
        lines(
            "GPU-hours",
            Unit.COUNT,
            "Of nodes that the team's runs hold, and the limit.",
            (f"max by (team) ({series.BUDGET_SPENT_GPU_HOURS})", "{{team}}"),
            (f"max by (team) ({series.BUDGET_GPU_HOURS})", "{{team}} limit"),
        ),
        lines(
            "Time left of overrides",
            Unit.SECONDS,
            "During which a team may exceed its budget.",
            (f"max by (team) ({series.BUDGET_OVERRIDE_END}) - time()", "{{team}}"),
        ),
    ),
)

COSTS: Final = Dashboard(
    uid=f"{naming.PROJECT}-costs",
    title="Costs",
    description="Ledger and budgets of this calendar month (UTC), of stacks with the section `costs`.",
    rows=(MONTH, LEDGER, BUDGETS),
    since="now-7d",
)
