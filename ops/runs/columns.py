"""The table of runs: its columns, once for `run list`, `--watch`, JSON, `sandbox status` and the run page.

A column is one entry of `COLUMNS`. The page shows the text of a cell; a macro `cell_KEY` of the template
`parts.html` replaces it by a link, a badge or a bar.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ops import objects
from ops.runs import states
from ops.runs.listing import Listing, RunSummary
from ops.snapshot import format_duration

NONE: Final = "-"
"""Text of a cell without a value."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """What the cells of a run are made of."""

    one: RunSummary
    now: dt.datetime
    cost: str = NONE
    """As text; only the page knows it."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of the table of runs."""

    key: str
    """Name in JSON."""
    title: str
    text: Callable[[Row], str]
    value: Callable[[RunSummary], Any] | None = None
    """JSON value; None: the run's record has it below `key`, or JSON lacks it."""
    width: int = 0
    """Least width in characters."""
    number: bool = False
    """Aligned to the right on the page."""
    by_clock: bool = False
    """Changes with time alone: `--watch` does not report such a change."""
    on_page_only: bool = False


def state_text(one: RunSummary) -> str:
    """Return the state with the place in the queue: `queued 2 of 5`."""
    return f"{one.state} {one.place} of {one.queued}" if one.place else one.state


def progress_text(one: RunSummary) -> str:
    """Return `120/1000`, `120`, or `-`."""
    at = one.progress
    if at.step is None:
        return NONE
    return f"{at.step}/{at.steps}" if at.steps else str(at.step)


def _nodes(row: Row) -> str:
    one = row.one
    if one.groups and not one.over:
        return f"{one.groups_training}/{one.groups_total} groups"
    if not one.nodes:
        return NONE
    return f"{one.ready}/{one.nodes}" if one.state == states.STARTING else str(one.nodes)


def _loss(row: Row) -> str:
    loss = row.one.progress.loss
    return NONE if loss is None else f"{loss:.3f}"


def _seconds_left(one: RunSummary) -> float | None:
    return one.progress.seconds_left if one.state == states.RUNNING else None


def _left(row: Row) -> str:
    left = _seconds_left(row.one)
    return NONE if left is None else format_duration(left)


def _age(row: Row) -> str:
    created = objects.time(row.one.created)
    return format_duration((row.now - created).total_seconds()) if created else NONE


COLUMNS: Final = (
    Column(key="run_id", title="Run", text=lambda row: row.one.run_id, width=3),
    Column(key="state", title="State", text=lambda row: state_text(row.one), width=8),
    Column(key="team", title="Team", text=lambda row: row.one.team or NONE),
    Column(key="nodes", title="Nodes", text=_nodes, number=True),
    Column(key="progress", title="Progress", text=lambda row: progress_text(row.one)),
    Column(key="loss", title="Loss", text=_loss, value=lambda one: one.progress.loss, number=True),
    Column(
        key="seconds_left",
        title="Ends in",
        text=_left,
        value=_seconds_left,
        number=True,
        by_clock=True,
    ),
    Column(key="cost", title="Cost", text=lambda row: row.cost, number=True, on_page_only=True),
    Column(
        key="attempt", title="Attempt", text=lambda row: str(row.one.attempt or NONE), number=True
    ),
    Column(key="age", title="Age", text=_age, number=True, by_clock=True),
)
_PRINTED: Final = tuple(one for one in COLUMNS if not one.on_page_only)


def lines(listing: Listing, now: dt.datetime) -> list[str]:
    if not listing.runs:
        return ["no runs"]
    rows = [Row(one=one, now=now) for one in listing.runs]
    head = [one.title.upper().ljust(one.width) for one in _PRINTED]
    return table([head, *([one.text(row) for one in _PRINTED] for row in rows)])


def change_line(one: RunSummary, now: dt.datetime) -> str:
    """Return a run in one line that changes only when the run does."""
    row = Row(one=one, now=now)
    return "  ".join(column.text(row) for column in _PRINTED if not column.by_clock)


def to_json(one: RunSummary) -> dict[str, Any]:
    """Return the run's record, and the columns that it lacks."""
    return one.to_json() | {c.key: c.value(one) for c in _PRINTED if c.value is not None}


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
