"""Which values a chart takes: keys and kinds of its own values.yaml, and what is wrong with ours.

Helm drops a misspelt value without a word. So every value that a plan sets is checked, in a test, against
keys read from the chart itself: `python -m infra.cli.chart_values` reads them anew. That is possible for
charts that lie in a Go module which the module proxy serves: `AddOn.chart_source`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from infra.addons.registry import ADD_ONS, CHART_SOURCES

FOLDER: Final = Path(__file__).resolve().parent

ANYTHING: Final = ("map", "null")
"""Kinds that say nothing of what may be below: an empty mapping, and no value at all."""

PASSED_ON: Final = (
    *("affinity", "nodeSelector", "resources", "tolerations"),
    *("containerSecurityContext", "podSecurityContext", "securityContext"),
)
"""Values that go into a pod as they are: what may be in them is Kubernetes' business."""


def module_version(add_on: str) -> str:
    """Version of the Go module that a chart's keys are read from."""
    return CHART_SOURCES[add_on].version or f"v{ADD_ONS[add_on].version.removeprefix('v')}"


def keys_file(add_on: str) -> Path:
    """Where a chart's keys are kept."""
    return FOLDER / f"{add_on}.json"


def keys(add_on: str) -> dict[str, Any]:
    """A chart's keys: nested as in its values, each leaf the kind of its default."""
    found: dict[str, Any] = json.loads(keys_file(add_on).read_text(encoding="utf-8"))["keys"]
    return found


def of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Keys and kinds of a values.yaml."""
    return {key: _kind(value) for key, value in sorted(values.items())}


def _kind(value: Any) -> Any:
    if isinstance(value, Mapping):
        return of(value) if value else "map"
    kinds = {bool: "bool", int: "number", float: "number", str: "text", list: "list"}
    return kinds.get(type(value), "null")


def value_errors(
    values: Mapping[str, Any], known: Mapping[str, Any], path: str = ""
) -> Iterator[str]:
    """One line for each value that the chart has no key for, or that is of another kind."""
    for key, value in values.items():
        here = f"{path}.{key}" if path else key
        if key not in known:
            yield f"{here} is no value of the chart"
        elif key in PASSED_ON:
            continue
        elif isinstance(known[key], Mapping):
            if isinstance(value, Mapping):
                yield from value_errors(value, known[key], here)
            else:
                yield f"{here} is a mapping in the chart"
        elif known[key] not in ANYTHING and _kind(value) != known[key]:
            yield f"{here} is {known[key]} in the chart, not {_named(value)}"


def _named(value: Any) -> str:
    return "a mapping" if isinstance(value, Mapping) else str(_kind(value))
