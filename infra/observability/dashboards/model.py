"""What a dashboard is made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from infra.domain import naming

RUN_UID: Final = f"{naming.PROJECT}-run"
TEAM_UID: Final = f"{naming.PROJECT}-team"


class Kind(StrEnum):
    """How a panel shows its numbers."""

    LINES = "timeseries"
    NUMBER = "stat"
    TABLE = "table"


class Unit(StrEnum):
    """Grafana's names of units."""

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
    """Not one of Grafana's, which then writes it behind the number."""


@dataclass(frozen=True, kw_only=True)
class Query:
    """One expression and the name of its lines, in which `{{label}}` stands for a label's value."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel. Widths and heights are in Grafana's grid, 24 wide."""

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
    """None: as the data has it."""
    maximum: float | None = None
    thresholds: tuple[tuple[float, str], ...] = ()
    """(from, colour), rising; below the first: green."""
    columns: tuple[str, ...] = ()
    """Labels that a table shows, in order; its values come last."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A heading and the panels under it."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, kw_only=True)
class Variable:
    """Something that the reader chooses, out of the values of a label."""

    name: str
    label: str
    query: str
    """As Grafana's Prometheus source takes it: `label_values(SERIES, LABEL)`."""
    several: bool = False


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """One dashboard."""

    uid: str
    """Part of its URL: never changed."""
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()
    since: str = "now-6h"

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All panels, rows left out."""
        return tuple(panel for row in self.rows for panel in row.panels)


def number(
    title: str, unit: Unit, expression: str, description: str, width: int = 4, **more: object
) -> Panel:
    """A small panel with the newest value."""
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
    """A panel of lines; each query is (expression, legend)."""
    return Panel(
        title=title,
        description=description,
        unit=unit,
        queries=tuple(Query(expression=text, legend=legend) for text, legend in queries),
        width=width,
        **more,  # type: ignore[arg-type]
    )
