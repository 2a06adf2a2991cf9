"""Limit a Prometheus to some namespaces: what the page asks for a user, who may not query it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from infra.observability import series
from ops.metrics import MetricsUnknownError, PrometheusClient, Query

_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"|`[^`]*`')
_SELECTOR: Final = re.compile(
    rf"(?<![\w:.])({'|'.join(sorted(map(re.escape, series.KNOWN), key=len, reverse=True))})"
    r"(?![\w:.])(\s*\{)?"
)
_QUERIES: Final = ("/api/v1/query", "/api/v1/query_range")


def limited(expression: str, namespaces: Sequence[str]) -> str:
    """Return an expression whose selectors match these namespaces only.

    All selectors of this project begin with a known series. Raises ValueError where one does not.
    """
    matcher = f'namespace=~"{"|".join(namespaces)}"'
    strings: list[str] = []

    def keep(found: re.Match[str]) -> str:
        strings.append(found[0])
        return "\0"

    # Names and braces inside of strings are not selectors.
    plain = _STRING.sub(keep, expression)
    narrow = _SELECTOR.sub(lambda m: f"{m[1]}{{\1" + ("," if m[2] else "}"), plain)
    foreign = {"\0", "\1"} & {*expression}
    if foreign or narrow.count("{") != narrow.count("{\1"):
        raise ValueError(f"a selector without a known series: {expression}")
    kept = iter(strings)
    return re.sub("\0", lambda _: next(kept), narrow).replace("\1", matcher)


def of_namespaces(client: PrometheusClient, namespaces: Sequence[str]) -> PrometheusClient:
    """Return a client that sees series of these namespaces only, and no alerts."""

    def get(path: str, query: Query) -> str | None:
        if path not in _QUERIES:
            raise MetricsUnknownError(f"{client.place}: {path} is of all teams")
        try:
            narrow = [(k, limited(v, namespaces) if k == "query" else v) for k, v in query]
        except ValueError as error:
            raise MetricsUnknownError(str(error)) from None
        return client.get(path, narrow)

    return PrometheusClient(client.place, get)
