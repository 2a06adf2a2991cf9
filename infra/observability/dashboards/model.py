"""Data model of a dashboard: rows, panels, queries, variables."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from infra.domain import naming

RUN_UID: Final = f"{naming.PROJECT}-run"
TEAM_UID: Final = f"{naming.PROJECT}-team"


class Kind(StrEnum):
    """Grafana's panel types."""

    LINES = "timeseries"
    NUMBER = "stat"
    TABLE = "table"


class Unit(StrEnum):
    """Grafana's unit names."""

    NONE = "none"
    COUNT = "short"
    RATIO = "percentunit"
    BYTES = "bytes"
    WATTS = "watt"
    CELSIUS = "celsius"
    HERTZ = "hertz"
    SECONDS = "s"
    USD = "currencyUSD"
    TOKENS_PER_SECOND = "tokens/s"
    """Not a Grafana unit: Grafana shows it as a suffix."""


@dataclass(frozen=True, kw_only=True)
class Query:
    """One expression and its legend, in which `{{label}}` is replaced by the label's value."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel. Width and height are in units of Grafana's grid, 24 columns wide."""

    title: str
    description: str
    unit: Unit
    queries: tuple[Query, ...]
    kind: Kind = Kind.LINES
    width: int = 8
    height: int = 8
    stacked: bool = False
    logarithmic: bool = False
    minimum: float | None = 0.0
    """Lower bound of the axis; None: automatic."""
    maximum: float | None = None
    thresholds: tuple[tuple[float, str], ...] = ()
    """(from, colour), ascending; values below the first are green."""
    columns: tuple[str, ...] = ()
    """Labels that a table shows, in order; the values come last."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A heading and its panels."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A selector of one or several values of a label."""

    name: str
    label: str
    query: str
    """In the syntax of Grafana's Prometheus data source: `label_values(SERIES, LABEL)`."""
    several: bool = False


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """One dashboard."""

    uid: str
    """Part of the dashboard's URL; must not change."""
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()
    since: str = "now-6h"

    @property
    def panels(self) -> tuple[Panel, ...]:
        """Return all panels, without the row headings."""
        return tuple(panel for row in self.rows for panel in row.panels)


def number(
    title: str, unit: Unit, expression: str, description: str, width: int = 4, **more: object
) -> Panel:
    """Return a small panel with the newest value."""
    return Panel(
        title=title,
        description=description,
        unit=unit,
        queries=(Query(expression=expression),),
        kind=Kind.NUMBER,
        width=width,
        height=4,
        **more,  # type: ignore[arg-type]
    )


def lines(
    title: str,
    unit: Unit,
    description: str,
    *queries: tuple[str, str],
    width: int = 8,
    **more: object,
) -> Panel:
    """Return a line chart; each query is (expression, legend)."""
    return Panel(
        title=title,
        description=description,
        unit=unit,
        queries=tuple(Query(expression=text, legend=legend) for text, legend in queries),
        width=width,
        **more,  # type: ignore[arg-type]
    )
