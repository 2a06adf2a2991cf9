"""Metrics of the ledger and the budgets, served to Prometheus by `cost enforce`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from infra.observability import series
from ops.budgets.decision import Budget, Level, Override, Reading, used
from ops.exposition import Sample
from ops.ledger.model import Account, Amount, Book

OVERRIDDEN: Final = "overridden"
STATES: Final[Mapping[Level, str]] = {
    Level.NONE: "ok",
    Level.WARN: "warned",
    Level.HOLD: "held",
    Level.DRAIN: "drained",
}
"""Values of the label `state`, besides OVERRIDDEN."""


@dataclass(frozen=True, kw_only=True)
class TeamState:
    """What was last decided about a team."""

    budget: Budget
    reading: Reading
    level: Level
    override: Override | None = None
    """The permission to spend more, while it holds."""
    decided: float | None = None
    """When a complete reading was last decided on, in Unix seconds; None: not since the start."""

    @property
    def state(self) -> str:
        return OVERRIDDEN if self.override else STATES[self.level]


def samples(book: Book, teams: Iterable[TeamState], recorded: float) -> Iterator[Sample]:
    """Yield all metrics. `book`: of this month. `recorded`: when the record was written, in Unix seconds."""
    yield from _ledger(book)
    for team in teams:
        yield from _of_team(team)
    yield series.COSTS_RECORDED, {}, recorded


def _ledger(book: Book) -> Iterator[Sample]:
    """Yield the month's amounts; an account's run, attempt and cause would make too many series."""
    sums: dict[tuple[str, ...], Amount] = {}
    for account, amount in book.items():
        sums.setdefault(_key(account), Amount()).merge(amount)
    for key, amount in sorted(sums.items()):
        labels = dict(zip(series.LEDGER_SECONDS.labels, key, strict=True))
        yield series.LEDGER_SECONDS, labels, amount.seconds
        yield series.LEDGER_USD, labels, amount.usd
        yield series.LEDGER_UNPRICED, labels, amount.unpriced


def _key(account: Account) -> tuple[str, ...]:
    return account.bucket.value, account.team, account.pool, account.purchase


def _of_team(one: TeamState) -> Iterator[Sample]:
    team = {"team": one.budget.team}
    for limit, value in (
        (series.BUDGET_USD, one.budget.usd_per_month),
        (series.BUDGET_GPU_HOURS, one.budget.gpu_hours_per_month),
        (series.BUDGET_OVERRIDE_END, one.override.until if one.override else None),
        (series.BUDGET_DECIDED, one.decided),
    ):
        if value is not None:
            yield limit, team, float(value)
    yield series.BUDGET_SPENT_USD, team, one.reading.usd
    yield series.BUDGET_SPENT_GPU_HOURS, team, one.reading.gpu_hours
    yield series.BUDGET_RATE, team, one.reading.usd_per_hour
    yield series.BUDGET_USED, team, used(one.budget, one.reading)
    for state in (*STATES.values(), OVERRIDDEN):
        yield series.BUDGET_STATE, team | {"state": state}, float(state == one.state)
