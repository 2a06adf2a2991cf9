"""PromQL expressions whose selectors are known, so that each can be limited to some namespaces.

An expression is a template of functions and operators; series and values come in by selectors only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from infra.observability.series import Series

_PLACE: Final = "{}"
_GROUPING: Final = re.compile(r"\b(?:by|on) \([a-z_]+(?:, [a-z_]+)*\)")
_DURATION: Final = re.compile(r"\[[0-9]+[smhd]\]")
_FUNCTIONS: Final = frozenset(
    {
        *("and", "avg", "count", "last_over_time", "max", "max_over_time"),
        *("quantile_over_time", "rate", "sum", "topk"),
    }
)
_REST: Final = re.compile(r"(?:[a-z_]+|[0-9]+(?:\.[0-9]+)?|[\s(),/+>])*")
_NAMESPACE: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")


class Regex(str):
    """A regular expression that the whole value of a label must match."""


def any_of(values: Iterable[str]) -> Regex:
    return Regex("|".join(re.escape(value) for value in values))


@dataclass(frozen=True)
class Selector:
    """The instances of a series with these labels: equal values, or a Regex."""

    series: Series
    labels: Mapping[str, str]

    def text(self, namespaces: Sequence[str] | None = None) -> str:
        """Return PromQL. `namespaces`: only series of these; None: of all."""
        limit = [] if namespaces is None else [("namespace", _limit(namespaces))]
        matchers = ",".join(
            f"{label}{'=~' if isinstance(value, Regex) else '='}{json.dumps(value, ensure_ascii=False)}"
            for label, value in (*limit, *self.labels.items())
        )
        return f"{self.series}{{{matchers}}}" if matchers else str(self.series)


def _limit(namespaces: Sequence[str]) -> Regex:
    if not namespaces or not all(map(_NAMESPACE.fullmatch, namespaces)):
        raise ValueError(f"namespaces: got {list(namespaces)}; expected one or more DNS labels")
    return any_of(namespaces)


class Expression:
    """A template with `{}` for each part, which is a selector or another expression."""

    def __init__(self, template: str, *parts: Selector | Expression) -> None:
        """Raises ValueError for a template that selects a series itself, or has a string."""
        plain = _DURATION.sub("", _GROUPING.sub("", template.replace(_PLACE, "")))
        words = {*re.findall(r"[a-z_]+", plain)}
        if not _REST.fullmatch(plain) or words - _FUNCTIONS or template.count(_PLACE) != len(parts):
            raise ValueError(
                f"PromQL template {template!r}: has more than functions, operators and a place for each of "
                f"{len(parts)} parts; pass series as selectors, and add new functions to promql.py"
            )
        self._template, self._parts = template, parts

    def text(self, namespaces: Sequence[str] | None = None) -> str:
        """Return PromQL whose selectors match these namespaces only; None: all."""
        return self._template.format(*(part.text(namespaces) for part in self._parts))

    def __str__(self) -> str:
        return self.text()


def select(series: Series, **labels: str) -> Selector:
    return Selector(series, labels)
